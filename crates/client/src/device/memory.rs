//! Device memory: what the process has of it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use vgpu_remoting::session::Session;

use super::Error;

/// Of what was allocated, the size in bytes by the address.
static ALLOCATIONS: Mutex<BTreeMap<u64, u64>> = Mutex::new(BTreeMap::new());

fn allocations() -> MutexGuard<'static, BTreeMap<u64, u64>> {
    ALLOCATIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The address of so many bytes.
///
/// # Errors
/// `OUT_OF_MEMORY` where there is no room, or nothing is asked for; of the way to the worker.
pub fn allocate(session: &Session<'_>, bytes: u64) -> Result<u64, Error> {
    let address = session.allocate(bytes)?;
    allocations().insert(address, bytes);
    Ok(address)
}

/// Frees what begins at an address.
///
/// # Errors
/// `INVALID_VALUE` where nothing does; of the way to the worker.
pub fn free(session: &Session<'_>, address: u64) -> Result<(), Error> {
    // Before another thread may be given the address anew.
    allocations().remove(&address).ok_or(Error::INVALID_VALUE)?;
    Ok(session.free(address)?)
}
