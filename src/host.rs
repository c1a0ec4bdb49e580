//! What a request is held against before anything is given: the bundle that it came in, the host's GPUs, what the
//! pool file cuts them into, the driver's files. Looks and changes nothing, so that `vgpu plan` sees what a hook would.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use crate::config::{self, Policy, PoolFile, Table};
use crate::device_rule::DeviceRule;
use crate::driver::{self, Capabilities, Capability};
use crate::error::{Error, Exit, OrExit, Result, quoted};
use crate::gpu::{DriverRoot, Gpu, Inventory, Majors};
use crate::oci::Bundle;
use crate::pool::{Lease, Offer};
use crate::request::{self, Request, Want};
use crate::resolve::{self, Plan};
use crate::types::DeviceNumber;
use crate::{access, files, remote};

/// The largest config.json that is read, in bytes: many times what engines write.
const CONFIG_LIMIT: u64 = 64 << 20;

/// What most of them fit in, in bytes: a seccomp profile alone has 10 kB and more.
const CONFIG_USUAL: usize = 32 << 10;

/// The bytes of a bundle's config.json. [`Exit::Request`] when it cannot be read.
pub fn read_config_json(bundle: &Path) -> Result<Vec<u8>> {
    let path = bundle.join("config.json");
    let cannot = || format!("cannot read {}", quoted(&path.to_string_lossy()));
    // A FIFO must not hold the hook up; for a regular file O_NONBLOCK means nothing.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(&path, flags, Mode::empty()).or_exit(Exit::Request, cannot)?;
    files::whole(File::from(file).take(CONFIG_LIMIT), CONFIG_USUAL).or_exit(Exit::Request, cannot)
}

/// A config.json of the bundle at `path`; none where it is wrong and asks for nothing: what is wrong beside a request
/// is the runtime's to say.
pub fn parse_config_json<'a>(config_json: &'a [u8], path: &Path) -> Result<Option<Bundle<'a>>> {
    match Bundle::parse(config_json) {
        Err(_) if asks_for_nothing(config_json) => Ok(None),
        bundle => bundle.map(Some).map_err(|e| e.context(quoted(&path.to_string_lossy()))),
    }
}

/// Does a config.json, however wrong it is, ask for no vGPU?
pub fn asks_for_nothing(config_json: &[u8]) -> bool {
    let bundle = Bundle::parse(config_json).ok().or_else(|| Bundle::parse_request(config_json));
    bundle.is_some_and(|bundle| request::find(&bundle).is_none())
}

/// The host's GPUs, and what the pool file cuts them into.
#[derive(Debug)]
pub struct Host {
    /// Where the driver's files and nodes are.
    pub driver: DriverRoot,
    /// The majors of the driver's nodes.
    pub majors: Majors,
    /// The physical GPUs.
    pub inventory: Inventory,
    /// The virtual ones cut from them.
    pub table: Table,
}

/// A request that this host could serve, if vGPUs are free.
#[derive(Debug)]
pub struct Servable<'a> {
    /// What it came in.
    pub bundle: &'a Bundle<'a>,
    /// What the pool is asked for.
    pub want: Want,
    /// What the engine itself lets the container open.
    pub rules: Vec<DeviceRule>,
    /// What it needs the driver for.
    pub capabilities: Capabilities,
    /// The driver's files for that, or what takes their place.
    pub found: driver::Found,
    /// The program that computes for it, if it gets no GPU.
    pub worker: Option<OwnedFd>,
}

impl Host {
    /// Cuts the inventory as the pool file says.
    pub fn new(driver: DriverRoot, inventory: Inventory, pool: &PoolFile, pool_file: &Path) -> Result<Self> {
        let table = pool.cut(&inventory).map_err(|problems| config::refusal(pool_file, &problems))?;
        Ok(Self { majors: Majors::read(&driver)?, driver, inventory, table })
    }

    /// Holds a request against the host, as far as neither the pool nor the created container matter.
    ///
    /// # Errors
    /// [`Exit::Request`] for one that this host never serves, or in a bundle that gives other ways to a GPU; those of
    /// [`driver::find`].
    pub fn check<'a>(
        &self,
        request: &Request,
        capabilities: Capabilities,
        bundle: &'a Bundle<'a>,
        pool: &PoolFile,
    ) -> Result<Servable<'a>> {
        let want = request.want(&pool.request, &pool.offered(&self.table))?;
        let rules = bundle.device_rules()?;
        if bundle.joins_mount_namespace() {
            let message = "the container joins a mount namespace, where its GPUs would stay when it is gone";
            let remedy = "give it one of its own (linux.namespaces)";
            return Err(Error::new(Exit::Request, message).remedy(remedy));
        }
        if !pool.policy.allow_other_access {
            access::check(bundle, &rules, &self.majors, &self.numbers())?;
        }
        let (found, worker) = if pool.is_remote(&want.kinds) {
            let remote::Installed { libraries, worker } = remote::find()?;
            (libraries, Some(worker))
        } else {
            (driver::find(&self.driver, &self.inventory.driver, capabilities)?, None)
        };
        Ok(Servable { bundle, want, rules, capabilities, found, worker })
    }

    /// Everything that goes into the container, once it has a lease.
    ///
    /// # Errors
    /// Those of [`resolve::plan`], and [`Exit::Request`] for a container that could use more than the MIG devices of
    /// its lease.
    pub fn plan(&self, lease: &Lease, servable: &Servable, policy: &Policy) -> Result<Plan> {
        let asks = |capability| servable.capabilities.contains(capability);
        let driver = resolve::Driver {
            majors: &self.majors,
            files: &servable.found.files,
            graphics: asks(Capability::Graphics),
            display: asks(Capability::Display),
        };
        let plan = resolve::plan(lease, &self.inventory, &driver)?;
        if !policy.allow_other_access && !plan.mig.is_empty() {
            access::check_mig(servable.bundle)?;
        }
        Ok(plan)
    }

    /// What there is to give.
    pub fn offer<'a>(&'a self, pool: &'a PoolFile) -> Offer<'a, impl Fn(&Gpu) -> bool + use<'a>> {
        let is_usable = |gpu: &Gpu| gpu.check(&self.driver).is_ok();
        Offer { table: &self.table, is_usable, policy: &pool.policy }
    }

    /// The numbers of all nodes that can make a GPU reachable, those of GPUs included that the inventory does
    /// not have: NVML left them out, or they came later.
    pub fn numbers(&self) -> Vec<DeviceNumber> {
        self.numbers_beside(&[])
    }

    /// The same without those that were leased.
    pub fn numbers_beside(&self, leased: &[DeviceNumber]) -> Vec<DeviceNumber> {
        let all = self.inventory.numbers(&self.majors);
        all.filter(|number| !leased.contains(number)).collect()
    }
}
