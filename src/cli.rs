//! The command line: one file per subcommand. The hook is dispatched before the argument parser, which
//! would cost it more than its own work.

pub mod config;
pub mod discover;
mod hook;
mod release;
mod status;
mod why;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::config::DEFAULT_PATH;
use crate::config::{PoolFile, Table};
use crate::error::{Exit, Result};
use crate::gpu::{DriverRoot, Inventory};
use crate::pool::store::StateDir;

/// Containers on this host share its GPUs: who holds what, and what runtimes call.
#[derive(Parser)]
#[command(name = "vgpu", version, arg_required_else_help = true, disable_help_subcommand = true)]
struct Arguments {
    /// The pool file
    #[arg(long, global = true, value_name = "PATH", default_value = DEFAULT_PATH)]
    config: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show GPUs, virtual GPUs, and who holds what since when
    Status {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Free what a container holds, if it is gone
    Release {
        /// The container's id, as `vgpu status` shows it, or its beginning
        container: String,
        /// Even if the container is there: its device cgroup is closed first
        #[arg(long)]
        force: bool,
    },
    /// Free what containers hold that are gone
    Reclaim {
        /// Only say what would be freed
        #[arg(long)]
        dry_run: bool,
    },
    /// Read anew what GPUs the host has
    Discover {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show why containers were refused
    Why {
        /// Only this container, by id or its beginning
        container: Option<String>,
    },
    /// Write or check the pool file
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Serve a container runtime: state on stdin (see hooks/ for how to set it up)
    Hook {
        /// createRuntime, prestart or poststop
        stage: String,
    },
}

#[derive(Subcommand)]
enum ConfigCommand {
    /// Write a commented pool file from what the host has
    Init {
        /// Where to; `-` is stdout. Default: the pool file
        path: Option<PathBuf>,
        /// Overwrite
        #[arg(long)]
        force: bool,
    },
    /// Report everything that is wrong with the pool file
    Check,
}

/// Runs the program on this process's arguments.
pub fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    if let Some(code) = discover::probe_if_asked(&arguments) {
        return code;
    }
    if let Some((pool_file, stage)) = hook::asked(&arguments) {
        return hook::main(&pool_file, stage);
    }
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(e) => {
            // Help and version go to stdout and are no error.
            let code = if e.use_stderr() { Exit::Usage as u8 } else { 0 };
            let _ = e.print();
            return ExitCode::from(code);
        }
    };
    match run(&arguments) {
        Ok(code) => code,
        Err(e) => {
            eprintln!("vgpu: {e}");
            ExitCode::from(e.exit as u8)
        }
    }
}

/// The pool as an admin's command looks at it.
struct View {
    driver: DriverRoot,
    inventory: Inventory,
    table: Table,
    state_dir: Option<StateDir>,
}

impl View {
    fn open(pool_file: &Path) -> Result<Self> {
        let pool: PoolFile = crate::config::read(pool_file)?;
        let driver = DriverRoot::open(&pool.driver_root)?;
        let state_dir = StateDir::open(&pool.state_dir)?;
        let inventory = todo!();
        let table = pool.cut(&inventory).map_err(|problems| crate::config::as_error(pool_file, &problems))?;
        Ok(Self { driver, inventory, table, state_dir })
    }

    fn leases(&self) -> Result<Vec<Lease>> {
        self.state_dir.as_ref().map_or(Ok(Vec::new()), StateDir::peek)
    }
}

fn run(arguments: &Arguments) -> Result<ExitCode> {
    let pool_file = &arguments.config;
    match &arguments.command {
        Command::Status { json } => status::run(pool_file, *json)?,
        Command::Release { container, force } => release::release(pool_file, container, *force)?,
        Command::Reclaim { dry_run } => release::reclaim(pool_file, *dry_run)?,
        Command::Discover { json } => todo!(),
        Command::Why { container } => why::run(pool_file, container.as_deref())?,
        Command::Config(command) => todo!(),
        Command::Hook { stage } => return Ok(hook::unknown(stage)),
    }
    Ok(ExitCode::SUCCESS)
}
