//! Device memory: what the process has of it, by whom it was allocated, and what an address is in.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use vgpu_remoting::session::Session;

use super::{Error, context};

/// What is known of an allocation.
#[derive(Clone, Copy, Debug)]
pub struct Allocation {
    /// Where it begins.
    pub address: u64,
    /// As many as were asked for.
    pub bytes: u64,
    /// In which context.
    pub context: u64,
    /// From which pool; 0 where from none.
    pub pool: u64,
    /// A number that no other allocation of the process has.
    pub id: u64,
}

impl Allocation {
    /// How many bytes of it can be used.
    fn room(self) -> u64 {
        self.bytes.next_multiple_of(GRAIN)
    }
}

/// What an allocation's end is rounded up to, in bytes; so much of it can be used.
const GRAIN: u64 = 512;

/// All of them.
struct Allocations {
    by_address: BTreeMap<u64, Allocation>,
    /// How many bytes were allocated from each pool.
    from_pools: BTreeMap<u64, u64>,
}

impl Allocations {
    fn insert(&mut self, allocation: Allocation) {
        *self.from_pools.entry(allocation.pool).or_default() += allocation.room();
        self.by_address.insert(allocation.address, allocation);
    }

    fn remove(&mut self, address: u64) -> Option<Allocation> {
        let removed = self.by_address.remove(&address)?;
        let from_pool = self.from_pools.entry(removed.pool).or_default();
        *from_pool -= removed.room();
        if *from_pool == 0 {
            self.from_pools.remove(&removed.pool);
        }
        Some(removed)
    }
}

static ALLOCATIONS: Mutex<Allocations> =
    Mutex::new(Allocations { by_address: BTreeMap::new(), from_pools: BTreeMap::new() });

fn allocations() -> MutexGuard<'static, Allocations> {
    ALLOCATIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The address of so many bytes, in the current context.
///
/// # Errors
/// `OUT_OF_MEMORY` where there is no room, or nothing is asked for; where no context is current; of the way to the
/// worker.
pub fn allocate(session: &Session<'_>, bytes: u64) -> Result<u64, Error> {
    allocate_from(session, bytes, 0)
}

/// As [`allocate`], from a pool.
///
/// # Errors
/// As [`allocate`].
pub fn allocate_from(session: &Session<'_>, bytes: u64, pool: u64) -> Result<u64, Error> {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let context = context::current()?;
    let address = session.allocate(bytes)?;
    let id = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    allocations().insert(Allocation { address, bytes, context, pool, id });
    Ok(address)
}

/// Frees what begins at an address.
///
/// # Errors
/// `INVALID_VALUE` where nothing does; of the way to the worker.
pub fn free(session: &Session<'_>, address: u64) -> Result<(), Error> {
    // Before another thread may be given the address anew.
    allocations().remove(address).ok_or(Error::INVALID_VALUE)?;
    Ok(session.free(address)?)
}

/// Takes away what is a context's, and says where it begins.
pub fn end_of(context: u64) -> Vec<u64> {
    let mut all = allocations();
    let of = |allocation: &&Allocation| allocation.context == context;
    let addresses: Vec<u64> = all.by_address.values().filter(of).map(|of| of.address).collect();
    for address in &addresses {
        all.remove(*address);
    }
    addresses
}

/// What an address is in; none where it is in nothing.
pub fn at(address: u64) -> Option<Allocation> {
    let found = allocations().by_address.range(..=address).next_back().map(|(_, found)| *found)?;
    (address - found.address < found.room()).then_some(found)
}

/// Are so many bytes from an address on all in one allocation?
///
/// # Errors
/// `INVALID_VALUE` where they are not.
pub fn within(address: u64, bytes: u64) -> Result<(), Error> {
    let room = at(address).map(|found| found.address + found.room() - address);
    if room.is_some_and(|room| bytes <= room) { Ok(()) } else { Err(Error::INVALID_VALUE) }
}

/// How many bytes were allocated from a pool.
pub fn from_pool(pool: u64) -> u64 {
    allocations().from_pools.get(&pool).copied().unwrap_or_default()
}
