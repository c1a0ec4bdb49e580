//! `vgpu plan [--type …] [--bundle DIR] [--json]`: what a container would get if it were started now, the virtual
//! beside the real, or why it would not start. Follows the hook's steps as far as no created container is needed,
//! and touches nothing: no lock, no lease, no state directory, no inventory is made.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf, absolute};

use jiff::Timestamp;

use crate::cgroup::{CgroupId, Hierarchy};
use crate::cli::printed;
use crate::config::{self, PoolFile};
use crate::device_rule::DeviceRule;
use crate::driver::Capabilities;
use crate::error::{Exit, OrExit, Result};
use crate::gpu::{self, DriverRoot, Probe};
use crate::host::{Host, Servable, parse_config_json, read_config_json};
use crate::inject::live;
use crate::oci::Bundle;
use crate::pool::store::StateDir;
use crate::pool::{self, Given, Lease, liveness};
use crate::request::{self, Request, Source};
use crate::resolve::Plan;
use crate::types::{Bytes, Count, DeviceNumber, TypeName};
use report::{Nothing, Report, print_json};

mod doubts;
mod report;

/// Arguments of `vgpu plan`.
#[derive(Clone, Debug, clap::Args)]
pub struct PlanArgs {
    /// A container that asks for so many (without it, 1)
    #[arg(long, value_name = "N")]
    count: Option<Count>,
    /// A container that asks for this type
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<TypeName>,
    /// A container that asks for at least so much memory, like 8GiB
    #[arg(long, value_name = "MEMORY")]
    memory: Option<Bytes>,
    /// A container with these NVIDIA_DRIVER_CAPABILITIES
    #[arg(long, value_name = "WORDS")]
    capabilities: Option<String>,
    /// The container of this bundle, whatever it asks for
    #[arg(long, value_name = "DIR", conflicts_with_all = ["count", "kind", "memory", "capabilities"])]
    bundle: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Who asks, and in what bundle.
struct Asker<'a> {
    source: &'static str,
    request: Request,
    capabilities: Capabilities,
    bundle: &'a Bundle<'a>,
    /// Absolute; none where there is no bundle.
    dir: Option<&'a Path>,
    /// What its config.json says against a plan, a line each.
    doubts: Vec<String>,
}

/// Prints what a container would get. Where a hook would refuse it, the error is the hook's.
pub fn run(pool_file: &Path, args: &PlanArgs) -> Result<()> {
    match &args.bundle {
        Some(dir) => of_bundle(pool_file, dir, args.json),
        None => of_command_line(pool_file, args),
    }
}

fn of_command_line(pool_file: &Path, args: &PlanArgs) -> Result<()> {
    let pool = config::read(pool_file)?;
    let PlanArgs { count, kind, memory, capabilities, .. } = args;
    let asker = Asker {
        source: "command line",
        request: Request { count: count.unwrap_or(Count::ONE), kind: kind.clone(), memory: *memory },
        capabilities: pool.driver.asked(capabilities.as_deref())?,
        bundle: &Bundle::default(),
        dir: None,
        doubts: Vec::new(),
    };
    print(&asker, &pool, pool_file, args.json)
}

fn of_bundle(pool_file: &Path, dir: &Path, json: bool) -> Result<()> {
    // Runtimes give a hook the absolute path.
    let dir = absolute(dir).or_exit(Exit::Usage, || format!("cannot use --bundle {}", dir.display()))?;
    let config_json = read_config_json(&dir)?;
    let bundle = parse_config_json(&config_json, &dir)?;
    let Some((bundle, found)) = bundle.as_ref().and_then(|bundle| Some((bundle, request::find(bundle)?)))
    else {
        return print_nothing("the container asks for no vGPU", json);
    };
    let pool = config::read(pool_file)?;
    if !found.may_ask(&pool.request) {
        let reason = "the container asks by environment alone, and pool.toml says allow_env = false";
        return print_nothing(reason, json);
    }
    let asker = Asker {
        source: match found.source {
            Source::Annotations => "annotations",
            Source::Environment => "environment",
        },
        request: found.check()?,
        capabilities: pool.driver.asked(bundle.env(Capabilities::VARIABLE))?,
        bundle,
        dir: Some(&dir),
        doubts: doubts::doubts(&config_json),
    };
    print(&asker, &pool, pool_file, json)
}

/// All that a hook decides before it touches the container.
struct Decided {
    host: Host,
    /// With the vGPUs that it would get.
    lease: Lease,
    plan: Plan,
    /// Which of the plan's nodes there are.
    present: Vec<DeviceNumber>,
    /// What each of the driver's files is needed for, by where it was found.
    needs: BTreeMap<String, Capabilities>,
    /// The driver's files that were not found.
    missing: Vec<String>,
    /// What of it the container's user cannot open.
    out_of_reach: Vec<String>,
    /// What the engine itself lets the container open.
    rules: Vec<DeviceRule>,
}

/// The hook's steps, in the hook's order.
fn decide(asker: &Asker, pool: &PoolFile, pool_file: &Path) -> Result<Decided> {
    let state_dir = StateDir::open(&pool.state_dir)?;
    let driver = DriverRoot::open(&pool.driver_root)?;
    let known = gpu::load_or_look(state_dir.as_ref().map(StateDir::fd), &driver, &Probe::default())?;
    let host = Host::new(driver, known.inventory, pool, pool_file)?;
    let servable = host.check(&asker.request, asker.capabilities, asker.bundle, pool)?;
    let mut leases = state_dir.map_or(Ok(Vec::new()), |dir| dir.peek())?;
    let remove_dead = |leases: &mut Vec<Lease>| liveness::remove_dead(leases).map(|_| ());
    let given =
        pool::give(&mut leases, stand_in(asker.dir)?, &servable.want, &host.offer(pool), remove_dead)?;
    let (Given::New(lease) | Given::Again(lease)) = given;
    let plan = host.plan(&lease, &servable, &pool.policy)?;
    let Servable { rules, found, .. } = servable;
    let needs = found.files.iter().map(|file| (file.path.clone(), file.capabilities())).collect();
    let open = live::open(plan.clone(), &host.driver, host.majors, found.files, None)?;
    let (present, out_of_reach) = (open.numbers(), open.out_of_reach(&asker.bundle.user()));
    if let Some(dir) = asker.dir {
        asker.bundle.root(dir)?;
    }
    Ok(Decided { host, lease, plan, present, needs, missing: found.missing, out_of_reach, rules })
}

/// The lease of a container that is not there.
fn stand_in(bundle: Option<&Path>) -> Result<Lease> {
    let cannot = || "cannot name a container";
    Ok(Lease {
        container: "plan".parse().or_exit(Exit::Io, cannot)?,
        bundle: bundle.unwrap_or(Path::new("/")).to_owned(),
        cgroup: CgroupId { hierarchy: Hierarchy::V2, path: "/".parse().or_exit(Exit::Io, cannot)?, inode: 0 },
        pid: 0,
        start_time: 0,
        since: Timestamp::now(),
        vgpus: Vec::new(),
    })
}

fn print(asker: &Asker, pool: &PoolFile, pool_file: &Path, json: bool) -> Result<()> {
    let report = Report::new(asker, decide(asker, pool, pool_file)?, pool);
    let mut out = io::stdout().lock();
    printed(if json { print_json(&report, &mut out) } else { report.print(&mut out) })
}

fn print_nothing(reason: &'static str, json: bool) -> Result<()> {
    let mut out = io::stdout().lock();
    printed(if json {
        print_json(&Nothing::new(reason), &mut out)
    } else {
        writeln!(out, "{reason}: a hook leaves it as it is")
    })
}
