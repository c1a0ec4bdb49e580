//! Host-allocated memory: in which context it was.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use vgpu_remoting::session::Session;

use super::{Error, context};

/// The context of each, by address.
static CONTEXTS: Mutex<BTreeMap<u64, u64>> = Mutex::new(BTreeMap::new());

fn contexts() -> MutexGuard<'static, BTreeMap<u64, u64>> {
    CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The flags that there are: for all contexts, mapped, and not read by the program. All of them are only kept: it is not
/// mapped whatever is asked, which is said when the device's address of it is.
const FLAGS: u32 = 1 | 2 | 4;

/// The address of so many bytes, in the current context.
///
/// # Errors
/// `INVALID_VALUE` for flags that there are not, or no bytes; `OUT_OF_MEMORY` where there is no room; where no context is
/// current; of the way to the worker.
pub fn allocate(session: &Session<'_>, bytes: u64, flags: u32) -> Result<u64, Error> {
    if flags & !FLAGS != 0 || bytes == 0 {
        return Err(Error::INVALID_VALUE);
    }
    let context = context::current()?;
    let address = session.allocate_host(bytes, flags)?;
    contexts().insert(address, context);
    Ok(address)
}

/// Frees what begins at an address, after all that was sent before.
///
/// # Errors
/// `INVALID_VALUE` where nothing does; of the way to the worker.
pub fn free(session: &Session<'_>, address: u64) -> Result<(), Error> {
    contexts().remove(&address).ok_or(Error::INVALID_VALUE)?;
    Ok(session.free_host(address)?)
}

/// Takes away what is a context's, and says where it begins.
pub fn end_of(context: u64) -> Vec<u64> {
    contexts().extract_if(.., |_, of| *of == context).map(|(address, _)| address).collect()
}

/// In which context what begins at an address was allocated.
pub fn context_of(address: u64) -> Option<u64> {
    contexts().get(&address).copied()
}
