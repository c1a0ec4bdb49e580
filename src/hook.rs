//! What a container runtime calls: createRuntime (or prestart) before a container's program starts, and
//! poststop after it ended. Only this file knows the order of the steps.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use jiff::Timestamp;
use rustix::fs::{Mode, OFlags};

use crate::cgroup::OwnCgroups;
use crate::config::{self, PoolFile, Table};
use crate::container::Container;
use crate::device_rule::DeviceRule;
use crate::driver::{self, Capabilities, Capability, DriverFile};
use crate::error::{Error, Exit, OrExit, Result, quoted};
use crate::files;
use crate::gpu::{self, DriverRoot, DrmNode, Inventory, Majors, Probe, drm_nodes};
use crate::inject::live::{self, Entry};
use crate::oci::{Bundle, Device, State};
use crate::pool::store::StateDir;
use crate::pool::{self, Given, Lease, Offer, liveness};
use crate::request::{self, Found, Source, Want};
use crate::types::{DeviceNumber, GpuUuid};
use crate::{access, inject, resolve};

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
    let bundle = match Bundle::parse(&config_json) {
        Err(_) if asks_for_nothing(&config_json) => return Ok(()),
        bundle => bundle.map_err(|e| e.context(quoted(&state.bundle.to_string_lossy())))?,
    };
    let Some(found) = request::find(&bundle) else { return Ok(()) };
    let rootless = is_rootless()?;
    let pool = match config::read(pool_file) {
        // There root's files do not look like root's.
        Err(_) if rootless => return Err(no_rootless()),
        read => read?,
    };
    if !may_ask(&found, &pool) {
        return Ok(());
    }
    let request = found.check()?;
    let capabilities = Capabilities::parse(bundle.env(Capabilities::VARIABLE))?;
    if rootless {
        return Err(no_rootless());
    }

    let pid = state.pid.ok_or_else(no_process)?;
    let container = Container::open(pid)?;
    let cgroups = OwnCgroups::open(container.proc(), bundle.cgroups_path())?;
    let state_dir = StateDir::create(&pool.state_dir)?;
    let host = Host::look(&pool, pool_file, &state_dir)?;
    let want = request.want(&pool.request, &pool.offered(&host.table))?;
    let rules = bundle.device_rules()?;
    if bundle.joins_mount_namespace() {
        let message = "the container joins a mount namespace, where its GPUs would stay when it is gone";
        return Err(Error::new(Exit::Request, message).remedy("give it one of its own (linux.namespaces)"));
    }
    let graphics = capabilities.contains(Capability::Graphics);
    let host = host.with_graphics(graphics || access::concerns_graphics(&bundle, &rules))?;
    if !pool.policy.allow_other_access {
        access::check(&bundle, &rules, &host.majors, &host.numbers())?;
    }
    let files = driver::find(&host.driver, &host.inventory.driver, capabilities)?.files;
    let asked = Asked { bundle: &bundle, rules: &rules, capabilities, files };

    let lease = Lease {
        container: state.id.clone(),
        bundle: state.bundle.clone(),
        cgroup: cgroups.outermost().id(),
        pid,
        start_time: container.start_time,
        since: Timestamp::now(),
        vgpus: Vec::new(),
    };
    let mut rollback = Rollback { state_dir: &state_dir, pool: &pool, granted: None, opened: None };
    let brought = grant(lease, &want, &host, &cgroups, &mut rollback)
        .and_then(|lease| bring_in(&lease, asked, &host, &container, &cgroups, &mut rollback));
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

/// The largest config.json that is read, in bytes: many times what engines write.
const CONFIG_LIMIT: u64 = 64 << 20;

/// What most of them fit in, in bytes: a seccomp profile alone has 10 kB and more.
const CONFIG_USUAL: usize = 32 << 10;

fn read_config_json(bundle: &Path) -> Result<Vec<u8>> {
    let path = bundle.join("config.json");
    let cannot = || format!("cannot read {}", quoted(&path.to_string_lossy()));
    // A FIFO must not hold the hook up; for a regular file O_NONBLOCK means nothing.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(&path, flags, Mode::empty()).or_exit(Exit::Request, cannot)?;
    files::whole(File::from(file).take(CONFIG_LIMIT), CONFIG_USUAL).or_exit(Exit::Request, cannot)
}

/// What is wrong beside the request is then the runtime's to say.
fn asks_for_nothing(config_json: &[u8]) -> bool {
    let bundle = Bundle::parse(config_json).ok().or_else(|| Bundle::parse_request(config_json));
    bundle.is_some_and(|bundle| request::find(&bundle).is_none())
}

fn may_ask(found: &Found, pool: &PoolFile) -> bool {
    found.source == Source::Annotations || pool.request.allow_env
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

/// What a request is held against: the host's GPUs, and what the pool file cuts them into.
struct Host {
    driver: DriverRoot,
    majors: Majors,
    inventory: Inventory,
    /// The GPUs' nodes of graphics, where anybody asks for them.
    drm: Vec<DrmNode>,
    table: Table,
    unusable: Vec<GpuUuid>,
}

impl Host {
    fn look(pool: &PoolFile, pool_file: &Path, state_dir: &StateDir) -> Result<Self> {
        let driver = DriverRoot::open(&pool.driver_root)?;
        let found = gpu::load_or_discover(state_dir.fd(), state_dir.path(), &driver, &Probe::default())?;
        let inventory = found.inventory;
        let table = pool.cut(&inventory).map_err(|problems| config::refusal(pool_file, &problems))?;
        let checks = inventory.check(&driver);
        let unusable = checks.into_iter().filter(|(_, check)| check.is_err()).map(|(uuid, _)| uuid).collect();
        Ok(Self { majors: Majors::read(&driver)?, driver, inventory, drm: Vec::new(), table, unusable })
    }

    fn with_graphics(mut self, wanted: bool) -> Result<Self> {
        if wanted {
            self.drm = drm_nodes(&self.driver, self.inventory.gpus.iter().map(|gpu| gpu.pci))?;
        }
        Ok(self)
    }

    /// The numbers of all nodes that can make a GPU reachable, those of GPUs included that the inventory does
    /// not have: NVML left them out, or they came later.
    fn numbers(&self) -> Vec<DeviceNumber> {
        self.numbers_beside(&[])
    }

    /// The same without those that were leased.
    fn numbers_beside(&self, leased: &[DeviceNumber]) -> Vec<DeviceNumber> {
        let all = self.inventory.numbers(&self.majors).chain(self.drm.iter().map(|node| node.number));
        all.filter(|number| !leased.contains(number)).collect()
    }
}

/// Records the container's lease: the one it has when it is asked for again, else a new one.
fn grant(
    lease: Lease,
    want: &Want,
    host: &Host,
    cgroups: &OwnCgroups,
    rollback: &mut Rollback,
) -> Result<Lease> {
    let offer = Offer { table: &host.table, unusable: &host.unusable, policy: &rollback.pool.policy };
    let mut locked = rollback.state_dir.lock(rollback.pool.policy.lock_timeout)?;
    liveness::remove_earlier_runs(&mut locked.leases, &lease, cgroups.outermost())?;
    let remove_dead = |leases: &mut Vec<Lease>| liveness::remove_dead(leases).map(|_| ());
    match pool::give(&mut locked.leases, lease, want, &offer, remove_dead)? {
        Given::Again(lease) => Ok(lease),
        Given::New(lease) => {
            locked.save()?;
            rollback.granted = Some(lease.clone());
            Ok(lease)
        }
    }
}

/// What a container asks for beside vGPUs.
struct Asked<'a> {
    bundle: &'a Bundle<'a>,
    rules: &'a [DeviceRule],
    capabilities: Capabilities,
    /// The driver's files for these.
    files: Vec<DriverFile>,
}

/// Brings what is behind a lease into the container.
fn bring_in<'a>(
    lease: &Lease,
    asked: Asked,
    host: &Host,
    container: &Container,
    cgroups: &'a OwnCgroups,
    rollback: &mut Rollback<'a>,
) -> Result<()> {
    let Asked { bundle, rules, capabilities, files } = asked;
    let allow_other_access = rollback.pool.policy.allow_other_access;
    let plan = {
        let (drm, display) = (host.drm.as_slice(), capabilities.contains(Capability::Display));
        let drm = if capabilities.contains(Capability::Graphics) { drm } else { &[] };
        let driver = resolve::Driver { majors: &host.majors, files: &files, drm, display };
        resolve::plan(lease, &host.inventory, &driver)?
    };
    if !allow_other_access && !plan.mig.is_empty() {
        access::check_mig(bundle)?;
    }
    let open = live::open(plan, &host.driver, host.majors, files)?;
    let allowed = rollback.opened.insert(inject::allow_devices(cgroups, &open.numbers(), rules)?);
    let others = if allow_other_access { Vec::new() } else { host.numbers_beside(&open.numbers()) };
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
    live::inject(&open, &entry)
}

/// What has been done so far, undone when the hook fails, by an error or a panic.
struct Rollback<'a> {
    state_dir: &'a StateDir,
    pool: &'a PoolFile,
    granted: Option<Lease>,
    opened: Option<inject::Undo<'a>>,
}

impl Rollback<'_> {
    fn keep_all(mut self) {
        self.granted = None;
        self.opened = None;
    }

    /// Goes on after an error, and gives the first. What could not be undone ends with the container: the
    /// runtime ends that now, and with it go its cgroup and the lease's life.
    fn undo(&mut self) -> Result<()> {
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
