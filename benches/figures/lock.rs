//! How long the pool is locked: lock, load, decide and save, as the hook does it, beside the least that
//! any program must do with a state file of the same bytes.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use rustix::fs::{FlockOperation, flock};
use vgpu::cgroup::{CgroupId, Hierarchy};
use vgpu::config::{CutGpu, Isolation, Policy, Table, Vgpu};
use vgpu::gpu::Gpu;
use vgpu::pool::store::StateDir;
use vgpu::pool::{self, Held, Lease, Offer};
use vgpu::request::Want;
use vgpu::types::{Bytes, Count, Part, Percent, TypeName, VgpuId};

use crate::turns::{Candidate, compare};

/// How often each is measured.
const ROUNDS: usize = 400;

/// How many leases there are before the one that is given.
const LEASES: [usize; 3] = [1, 64, 1000];

/// GPUs of the host, and vGPUs of each: some are free whatever is leased.
const GPUS: u32 = 16;
const VGPUS: u32 = 64;

/// Prints a table for each number of leases.
pub fn print() {
    // A tmpfs, as /run is.
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let table = table();
    for n in LEASES {
        let bench = Bench {
            dir: StateDir::create(dir.path()).expect("state_dir"),
            path: dir.path(),
            table: &table,
            leases: (0..n).map(|n| lease(&table, n)).collect(),
        };
        bench.reset();
        let title = format!("The pool locked, {n} leases, {} bytes", bench.bytes().len());
        let candidates = vec![
            Candidate::new("flock + read + write + rename", || bench.bare()),
            Candidate::new("lock + load + decide + save", || bench.vgpu()),
        ];
        compare(&title, ROUNDS, candidates);
    }
}

struct Bench<'a> {
    dir: StateDir,
    path: &'a Path,
    table: &'a Table,
    leases: Vec<Lease>,
}

impl Bench<'_> {
    fn reset(&self) {
        let mut locked = self.dir.lock(Duration::ZERO).expect("the lock");
        locked.leases.clone_from(&self.leases);
        locked.save().expect("saved");
    }

    fn state_file(&self) -> std::path::PathBuf {
        self.path.join(format!("state-{}.json", self.dir.boot()))
    }

    fn bytes(&self) -> Vec<u8> {
        fs::read(self.state_file()).expect("the state")
    }

    /// What the hook does with the lock held.
    fn vgpu(&self) -> Duration {
        self.reset();
        let wanted = lease(self.table, self.leases.len());
        let want = Want { count: Count::ONE, kinds: vec![kind()] };
        let policy = Policy::default();
        let offer = Offer { table: self.table, is_usable: |_: &vgpu::gpu::Gpu| true, policy: &policy };
        let start = Instant::now();
        let mut locked = self.dir.lock(Duration::ZERO).expect("the lock");
        pool::give(&mut locked.leases, wanted, &want, &offer, |_| Ok(())).expect("a vGPU");
        locked.save().expect("saved");
        start.elapsed()
    }

    /// The same bytes, not looked at.
    fn bare(&self) -> Duration {
        self.reset();
        let (state, temporary) = (self.state_file(), self.path.join("bare"));
        let start = Instant::now();
        let lock = File::options().read(true).write(true).open(self.path.join("lock")).expect("the lock");
        flock(&lock, FlockOperation::NonBlockingLockExclusive).expect("flock");
        let bytes = fs::read(&state).expect("the state");
        File::create(&temporary).and_then(|mut file| file.write_all(&bytes)).expect("written");
        fs::rename(&temporary, &state).expect("renamed");
        drop(lock);
        start.elapsed()
    }
}

fn kind() -> TypeName {
    "slice".parse().expect("a name")
}

fn vgpu(gpu: u32, n: u32) -> Vgpu {
    let uuid = format!("GPU-5a6b7c8d-0000-1111-2222-{gpu:012x}").parse().expect("a UUID");
    let compute = Percent::try_from(1).expect("1 %");
    let id = VgpuId { gpu: uuid, kind: kind(), part: Part::Share(n) };
    Vgpu { id, memory: Bytes(256 << 20), compute: Some(compute), isolation: Isolation::None, mig: None }
}

fn table() -> Table {
    let gpu = |minor: u32| {
        let vgpus: Vec<Vgpu> = (0..VGPUS).map(|n| vgpu(minor, n)).collect();
        let gpu = Gpu {
            uuid: vgpus[0].id.gpu.clone(),
            pci: format!("0000:{minor:02x}:00.0").parse().expect("an address"),
            minor,
            name: "NVIDIA A100-SXM4-40GB".to_owned(),
            memory: Some(Bytes(40 << 30)),
            mig: None,
            drm: Vec::new(),
        };
        CutGpu { gpu, vgpus }
    };
    Table { gpus: (0..GPUS).map(gpu).collect(), absent: Vec::new() }
}

/// The n-th container's lease of the n-th vGPU; names as long as podman's.
fn lease(table: &Table, n: usize) -> Lease {
    let id = format!("{n:064x}");
    let cut = &table.gpus[n / VGPUS as usize];
    let vgpu = &cut.vgpus[n % VGPUS as usize];
    Lease {
        bundle: format!("/var/lib/containers/storage/overlay-containers/{id}/userdata").into(),
        cgroup: CgroupId {
            hierarchy: Hierarchy::V2,
            path: format!("/machine.slice/libpod-{id}.scope").parse().expect("a path"),
            inode: 1_000_000 + n as u64,
        },
        container: id.parse().expect("an id"),
        pid: 10_000 + n as u32,
        start_time: 123_456_789,
        since: Timestamp::now(),
        vgpus: vec![Held::from(vgpu)],
    }
}
