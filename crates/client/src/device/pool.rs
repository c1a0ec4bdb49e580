//! Pools of device memory. Order is total, so that what is freed in a stream is free at once, and nothing is kept back: a
//! pool is a name for what was allocated from it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use vgpu_remoting::session::Session;

use super::{Error, memory};
use crate::handles::{Handles, fresh};

/// What is set on one.
#[derive(Clone, Copy)]
struct Pool {
    /// Whether memory may be used again for each of three reasons, of which nothing comes.
    reuse: [bool; 3],
    /// How much it would keep back.
    threshold: u64,
    /// How much there was at most.
    high: u64,
}

impl Pool {
    const NEW: Self = Self { reuse: [true; 3], threshold: 0, high: 0 };
}

static POOLS: Handles<Pool> = Handles::new();

/// The one that is allocated from where none is named; 0 is the default one.
static CHOSEN: AtomicU64 = AtomicU64::new(0);

/// The device's own.
pub fn default() -> u64 {
    static DEFAULT: OnceLock<u64> = OnceLock::new();
    *DEFAULT.get_or_init(|| {
        let pool = fresh();
        POOLS.insert(pool, Pool::NEW);
        pool
    })
}

/// The one that is allocated from where none is named.
pub fn chosen() -> u64 {
    match CHOSEN.load(Ordering::Relaxed) {
        pool if POOLS.get(pool).is_some() => pool,
        _ => default(),
    }
}

/// Chooses one.
///
/// # Errors
/// `INVALID_VALUE` where there is no such.
pub fn choose(pool: u64) -> Result<(), Error> {
    known(pool)?;
    CHOSEN.store(pool, Ordering::Relaxed);
    Ok(())
}

/// A new one.
pub fn create() -> u64 {
    POOLS.create(Pool::NEW)
}

/// Ends one. What was allocated from it stays; the default one has no end.
///
/// # Errors
/// `INVALID_VALUE` where there is no such.
pub fn destroy(pool: u64) -> Result<(), Error> {
    if pool == default() {
        return Err(Error::INVALID_VALUE);
    }
    POOLS.destroy(pool).map(|_| ()).ok_or(Error::INVALID_VALUE)
}

fn get(pool: u64) -> Result<Pool, Error> {
    POOLS.get(pool).ok_or(Error::INVALID_VALUE)
}

/// Is there this pool?
///
/// # Errors
/// `INVALID_VALUE` where there is not.
pub fn known(pool: u64) -> Result<(), Error> {
    get(pool).map(|_| ())
}

/// The address of so many bytes from one; of none, it is NULL.
///
/// # Errors
/// As [`known`] and [`memory::allocate`].
pub fn allocate(session: &Session<'_>, bytes: u64, pool: u64) -> Result<u64, Error> {
    known(pool)?;
    if bytes == 0 {
        return Ok(0);
    }
    let address = memory::allocate_from(session, bytes, pool)?;
    if let Some(set) = POOLS.get(pool) {
        POOLS.set(pool, Pool { high: set.high.max(memory::from_pool(pool)), ..set });
    }
    Ok(address)
}

/// An attribute, by CUDA's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    Int(i32),
    Wide(u64),
}

/// Of one.
///
/// # Errors
/// `INVALID_VALUE` where there is no such pool or attribute.
pub fn attribute(pool: u64, attribute: i32) -> Result<Value, Error> {
    let set = get(pool)?;
    Ok(match attribute {
        1..=3 => Value::Int(set.reuse[attribute as usize - 1].into()),
        4 => Value::Wide(set.threshold),
        // What is reserved is what is used.
        5 | 7 => Value::Wide(memory::from_pool(pool)),
        6 | 8 => Value::Wide(set.high),
        _ => return Err(Error::INVALID_VALUE),
    })
}

/// Is this attribute an `int`, rather than 64 bits?
pub fn is_int(attribute: i32) -> bool {
    attribute <= 3
}

/// Sets one.
///
/// # Errors
/// As [`attribute`]; `INVALID_VALUE` for one that only is asked for, and for a high mark that is not to begin anew.
pub fn set_attribute(pool: u64, attribute: i32, value: u64) -> Result<(), Error> {
    let mut set = get(pool)?;
    match (attribute, value) {
        (1..=3, _) => set.reuse[attribute as usize - 1] = value != 0,
        (4, _) => set.threshold = value,
        (6 | 8, 0) => set.high = memory::from_pool(pool),
        _ => return Err(Error::INVALID_VALUE),
    }
    POOLS.set(pool, set).ok_or(Error::INVALID_VALUE)
}
