//! The command line: one file per subcommand. The hook is dispatched before the argument parser, which
//! would cost it more than its own work.

pub mod config;
pub mod discover;
mod hook;
mod plan;
mod release;
mod status;
mod why;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Parser, Subcommand};

use crate::config::DEFAULT_PATH;
use crate::config::{PoolFile, Table};
use crate::error::{Error, Exit, OrExit, Result};
use crate::gpu::{self, DriverRoot, Inventory, Probe};
use crate::journal;
use crate::pool::Lease;
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
        /// Even if it is there: its GPUs are closed to it; what it has open it keeps until its processes end
        #[arg(long)]
        force: bool,
    },
    /// Free what containers hold that are gone
    Reclaim {
        /// Only say what would be freed
        #[arg(long)]
        dry_run: bool,
    },
    /// Show what a container would get now, or why it would be refused; nothing is given
    Plan(plan::PlanArgs),
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
    /// Serve a container runtime: state on stdin (<prefix>/share/vgpu/hooks.json sets it up)
    Hook {
        /// createRuntime, prestart or poststop
        stage: String,
    },
}

#[derive(Subcommand)]
enum ConfigCommand {
    /// Write a commented pool file from what the host has
    Init(config::InitArgs),
    /// Report everything that is wrong with the pool file
    Check,
}

/// Runs the program on this process's arguments; its exit code.
pub fn main() -> u8 {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    if arguments.iter().skip(1).eq(gpu::PROBE_ARGS.iter()) {
        return gpu::answer_probe();
    }
    if let Some((pool_file, stage)) = hook::asked(&arguments) {
        return hook::main(&pool_file, stage);
    }
    match Arguments::try_parse_from(&arguments) {
        Ok(parsed) => run(&parsed).unwrap_or_else(|error| fail(&error)),
        Err(refused) => not_parsed(&arguments, &refused),
    }
}

/// The end of printing. A reader that has seen enough (`vgpu status | head`) is no error.
fn printed(outcome: io::Result<()>) -> Result<()> {
    match outcome {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome.or_exit(Exit::Io, || "cannot write to standard output"),
    }
}

fn fail(error: &Error) -> u8 {
    journal::say(error);
    error.exit as u8
}

/// Help and version were asked for, or nothing at all, or what was written is wrong.
fn not_parsed(arguments: &[OsString], refused: &clap::Error) -> u8 {
    use clap::error::ErrorKind::{DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion};
    match refused.kind() {
        DisplayHelp | DisplayVersion => {
            let _ = refused.print();
            0
        }
        DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = refused.print();
            Exit::Usage as u8
        }
        // Whoever set a hook up so may never see its stderr.
        _ if arguments.iter().any(|argument| argument == "hook") => {
            hook::fail(Path::new(DEFAULT_PATH), None, &usage(&refused.to_string()))
        }
        _ => fail(&usage(&refused.to_string())),
    }
}

/// The parser's paragraphs as one line: what is wrong, and its tip, without what follows. They hold words of the
/// command line; the parser leaves control characters out.
fn usage(paragraphs: &str) -> Error {
    let ends = ["\n\nUsage:", "\n\nFor more information"];
    let said = ends.iter().fold(paragraphs, |said, end| said.split(end).next().unwrap_or(said));
    let said = said.strip_prefix("error: ").unwrap_or(said).replace("\n\n  tip:", ";");
    let words: Vec<&str> = said.split_whitespace().collect();
    Error::new(Exit::Usage, format!("{}; see `vgpu --help`", words.join(" ")))
}

/// The pool as an admin's command looks at it.
struct View {
    driver: DriverRoot,
    inventory: Inventory,
    table: Table,
    leases: Vec<Lease>,
    /// None where no hook has run.
    state_dir: Option<StateDir>,
    overcommit: bool,
}

impl View {
    fn open(pool_file: &Path) -> Result<Self> {
        let pool = crate::config::read(pool_file)?;
        let state_dir = StateDir::open(&pool.state_dir)?;
        let leases = state_dir.as_ref().map_or(Ok(Vec::new()), StateDir::peek)?;
        let inventory = inventory(&pool)?;
        let table = pool.cut(&inventory).map_err(|problems| crate::config::refusal(pool_file, &problems))?;
        let driver = DriverRoot::open(&pool.driver_root)?;
        Ok(Self { driver, inventory, table, leases, state_dir, overcommit: pool.policy.overcommit })
    }
}

/// What the host has, as the hooks know it; read anew where no hook has run yet.
fn inventory(pool: &PoolFile) -> Result<Inventory> {
    let driver = DriverRoot::open(&pool.driver_root)?;
    let found = match StateDir::open(&pool.state_dir)? {
        Some(dir) => gpu::load_or_discover(dir.fd(), dir.path(), &driver, &Probe::default()),
        None => gpu::discover(&driver, &Probe::default()),
    };
    Ok(found?.inventory)
}

/// The same for a driver root alone, before there is a pool file.
fn inventory_below(driver_root: &Path) -> Result<Inventory> {
    Ok(gpu::discover(&DriverRoot::open(driver_root)?, &Probe::default())?.inventory)
}

fn run_config(pool_file: &Path, command: &ConfigCommand) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match command {
        ConfigCommand::Init(arguments) => config::init(arguments, pool_file, inventory_below, &mut out),
        ConfigCommand::Check => config::check(pool_file, inventory, &mut out),
    }
}

fn run(arguments: &Arguments) -> Result<u8> {
    let pool_file = &arguments.config;
    match &arguments.command {
        Command::Status { json } => status::run(pool_file, *json)?,
        Command::Release { container, force } => release::release(pool_file, container, *force)?,
        Command::Reclaim { dry_run } => release::reclaim(pool_file, *dry_run)?,
        Command::Plan(arguments) => plan::run(pool_file, arguments)?,
        Command::Discover { json } => discover::run(pool_file, *json)?,
        Command::Why { container } => why::run(pool_file, container.as_deref())?,
        Command::Config(command) => run_config(pool_file, command)?,
        Command::Hook { stage } => return Ok(hook::main(pool_file, stage)),
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said of a command line that is wrong.
    fn said(arguments: &[&str]) -> String {
        let Err(refused) = Arguments::try_parse_from(arguments) else { panic!("{arguments:?} is right") };
        let error = usage(&refused.to_string());
        assert_eq!(error.exit, Exit::Usage);
        error.to_string()
    }

    #[test]
    fn a_wrong_command_line_is_one_line_too() {
        for (arguments, line) in [
            (
                &["vgpu", "hook"][..],
                "the following required arguments were not provided: <STAGE>; see `vgpu --help`",
            ),
            (
                &["vgpu", "stauts"],
                "unrecognized subcommand 'stauts'; a similar subcommand exists: 'status'; see `vgpu --help`",
            ),
            (&["vgpu", "why", "a", "b\n\u{7}"], "unexpected argument 'b ' found; see `vgpu --help`"),
            (
                &["vgpu", "plan", "--count", "0"],
                "invalid value '0' for '--count <N>': a count is a whole number above 0, without sign or spaces; see `vgpu --help`",
            ),
        ] {
            assert_eq!(said(arguments), line);
        }
    }
}
