//! What a container runtime calls: createRuntime (or prestart) before a container's program starts, and
//! poststop after it ended. Only this file knows the order of the steps; `vgpu plan` follows it up to the container.

use std::path::Path;

use jiff::Timestamp;

use crate::cgroup::OwnCgroups;
use crate::config::{self, PoolFile};
use crate::container::Container;
use crate::driver::Capabilities;
use crate::error::{Error, Exit, Result};
use crate::files;
use crate::gpu::{self, DriverRoot, Probe};
use crate::host::{Host, Servable, asks_for_nothing, parse_config_json, read_config_json};
use crate::inject::live::{self, Entry};
use crate::oci::{Device, State};
use crate::pool::store::StateDir;
use crate::pool::{self, Given, Lease, liveness};
use crate::remote::worker::Worker;
use crate::request::{self, Want};
use crate::types::DeviceNumber;
use crate::{inject, journal};

/// When in a container's life a hook is called (runtime-spec, "POSIX-platform Hooks").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// createRuntime, or prestart, which older runtimes call at the same moment.
    CreateRuntime,
    /// poststop
    Poststop,
}

/// Serves one call of a runtime.
pub fn run(stage: Stage, pool_file: &Path, state: &State) -> Result<()> {
    match stage {
        Stage::CreateRuntime => create_runtime(pool_file, state),
        Stage::Poststop => poststop(pool_file, state),
    }
}

/// Gives the container what it asks for, all of it, or fails and leaves nothing behind. A container that
/// asks for nothing is left alone before anything of the host is looked at.
fn create_runtime(pool_file: &Path, state: &State) -> Result<()> {
    let config_json = read_config_json(&state.bundle)?;
    let Some(bundle) = parse_config_json(&config_json, &state.bundle)? else { return Ok(()) };
    let Some(asked) = request::find(&bundle) else { return Ok(()) };
    let rootless = is_rootless()?;
    let pool = match config::read(pool_file) {
        // There root's files do not look like root's.
        Err(_) if rootless => return Err(no_rootless()),
        read => read?,
    };
    if !asked.may_ask(&pool.request) {
        return Ok(());
    }
    let request = asked.check()?;
    let capabilities = pool.driver.asked(bundle.env(Capabilities::VARIABLE))?;
    if rootless {
        return Err(no_rootless());
    }

    let pid = state.pid.ok_or_else(no_process)?;
    let container = Container::open(pid)?;
    let cgroups = OwnCgroups::open(container.proc(), bundle.cgroups_path())?;
    let state_dir = StateDir::create(&pool.state_dir)?;
    let driver = DriverRoot::open(&pool.driver_root)?;
    let known = gpu::load_or_discover(state_dir.fd(), state_dir.path(), &driver, &Probe::default())?;
    let host = Host::new(driver, known.inventory, &pool, pool_file)?;
    let servable = host.check(&request, capabilities, &bundle, &pool)?;
    if pool.debug {
        journal::note(&state_dir, state.id.as_str(), &servable.found.missing);
    }

    let lease = Lease {
        container: state.id.clone(),
        bundle: state.bundle.clone(),
        cgroup: cgroups.outermost().id(),
        pid,
        start_time: container.start_time,
        since: Timestamp::now(),
        vgpus: Vec::new(),
    };
    let mut rollback =
        Rollback { state_dir: &state_dir, pool: &pool, granted: None, worker: None, opened: None };
    let brought = grant(lease, &servable.want, &host, &cgroups, &mut rollback)
        .and_then(|lease| bring_in(&lease, servable, &host, &container, &cgroups, &mut rollback));
    match brought {
        Ok(()) => {
            rollback.keep_all();
            Ok(())
        }
        Err(e) => Err(e.also(rollback.undo())),
    }
}

/// Frees what the container held, if no process of it is left: poststop may come late, when the container
/// is running again under the same id (R01), or twice (R02), or for one that never had a lease.
fn poststop(pool_file: &Path, state: &State) -> Result<()> {
    // Without its config.json, which the engine may have removed by now, only the pool can tell.
    if read_config_json(&state.bundle).is_ok_and(|config_json| asks_for_nothing(&config_json)) {
        return Ok(());
    }
    // There nothing is ever given.
    if is_rootless()? {
        return Ok(());
    }
    let pool = config::read(pool_file)?;
    let Some(state_dir) = StateDir::open(&pool.state_dir)? else { return Ok(()) };
    if !state_dir.peek()?.iter().any(|lease| lease.container == state.id) {
        return Ok(());
    }
    let mut locked = state_dir.lock(pool.policy.lock_timeout)?;
    let freed = pool::release(&mut locked.leases, &state.id, liveness::is_alive)?;
    if freed { locked.save() } else { Ok(()) }
}

/// In a user namespace there is no right to open devices for anybody, nor to enter what root has made.
fn is_rootless() -> Result<bool> {
    let map = files::of_proc("/proc/self/uid_map")?;
    let initial = map.split_whitespace().eq(["0", "0", "4294967295"]);
    Ok(!initial || !rustix::process::geteuid().is_root())
}

fn no_rootless() -> Error {
    let message =
        "rootless containers cannot have vGPUs yet; start the container with an engine that runs as root";
    Error::new(Exit::Request, message)
}

fn no_process() -> Error {
    let message = "the state on stdin names no process of the container";
    Error::new(Exit::Request, message).remedy("call the hook at createRuntime or prestart")
}

/// Records the container's lease: the one it has when it is asked for again, else a new one.
fn grant(
    lease: Lease,
    want: &Want,
    host: &Host,
    cgroups: &OwnCgroups,
    rollback: &mut Rollback,
) -> Result<Lease> {
    let mut locked = rollback.state_dir.lock(rollback.pool.policy.lock_timeout)?;
    liveness::remove_earlier_runs(&mut locked.leases, &lease, cgroups.outermost())?;
    let remove_dead = |leases: &mut Vec<Lease>| liveness::remove_dead(leases).map(|_| ());
    match pool::give(&mut locked.leases, lease, want, &host.offer(rollback.pool), remove_dead)? {
        Given::Again(lease) => Ok(lease),
        Given::New(lease) => {
            locked.save()?;
            rollback.granted = Some(lease.clone());
            Ok(lease)
        }
    }
}

/// Brings what is behind a lease into the container.
fn bring_in<'a>(
    lease: &Lease,
    servable: Servable,
    host: &Host,
    container: &Container,
    cgroups: &'a OwnCgroups,
    rollback: &mut Rollback<'a>,
) -> Result<()> {
    let allow_other_access = rollback.pool.policy.allow_other_access;
    let plan = host.plan(lease, &servable, &rollback.pool.policy)?;
    let Servable { bundle, rules, found, worker, .. } = servable;
    // For whoever has no GPU that is all of the driver's nodes, also those that are none of a GPU's own.
    let remote = if plan.remote { plan.others.as_slice() } else { &[] };
    let closed: Vec<DeviceNumber> = remote.iter().map(|node| node.number).collect();
    match (lease.remote(), worker) {
        (None, None) => {}
        (Some(memory), Some(program)) => {
            let cgroup = cgroups.outermost();
            rollback.worker = Some(Worker::start(rollback.state_dir, lease, memory, cgroup, &program)?);
        }
        // The hook is called a second time, and the lease is of the first.
        _ => {
            let message =
                "the type's isolation was changed in pool.toml while the container starts; start it again";
            return Err(Error::new(Exit::Request, message));
        }
    }
    let socket = rollback.worker.as_ref().map(Worker::socket).transpose()?;
    let open = live::open(plan, &host.driver, host.majors, found.files, socket)?;
    let allowed = rollback.opened.insert(inject::allow_devices(cgroups, &open.numbers(), &rules)?);
    let others =
        if allow_other_access { Vec::new() } else { [host.numbers_beside(&open.numbers()), closed].concat() };
    let birth = inject::confine(cgroups, allowed, &others)?;
    let given: Vec<DeviceNumber> = bundle.devices().iter().filter_map(Device::number).collect();
    let entry = Entry {
        container,
        root: &bundle.root(&lease.bundle)?,
        read_only: bundle.root_is_read_only(),
        mount_label: bundle.mount_label(),
        birth,
        allow_other_access,
        given: &given,
    };
    live::inject(&open, &entry)?;
    // It had the time of all that to start.
    rollback.worker.as_ref().map_or(Ok(()), Worker::wait)?;
    journal::note(rollback.state_dir, lease.container.as_str(), &open.out_of_reach(&bundle.user()));
    Ok(())
}

/// What has been done so far, undone when the hook fails, by an error or a panic.
struct Rollback<'a> {
    state_dir: &'a StateDir,
    pool: &'a PoolFile,
    granted: Option<Lease>,
    worker: Option<Worker>,
    opened: Option<inject::Undo<'a>>,
}

impl Rollback<'_> {
    fn keep_all(mut self) {
        self.granted = None;
        self.worker = None;
        self.opened = None;
    }

    /// Goes on after an error, and gives the first. What could not be undone ends with the container: the
    /// runtime ends that now, and with it go its cgroup and the lease's life.
    fn undo(&mut self) -> Result<()> {
        if let Some(worker) = self.worker.take() {
            worker.end();
        }
        let closed = self.opened.take().map_or(Ok(()), inject::Undo::undo);
        let released = self.granted.take().map_or(Ok(()), |lease| self.release(&lease));
        closed.and(released)
    }

    fn release(&self, granted: &Lease) -> Result<()> {
        let mut locked = self.state_dir.lock(self.pool.policy.lock_timeout)?;
        locked.leases.retain(|lease| lease != granted);
        locked.save()
    }
}

/// After a panic; everything else has been undone, or kept, by then.
impl Drop for Rollback<'_> {
    fn drop(&mut self) {
        let _ = self.undo();
    }
}
