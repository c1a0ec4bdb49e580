//! Contexts: whose streams, events and memory are whose, and which one is current in a thread. Nothing is sent for them,
//! but what becomes of what is theirs when they end.

use std::cell::RefCell;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use vgpu_remoting::cudnn;
use vgpu_remoting::session::Session;

use super::{Error, event, host, memory, stream};
use crate::handles::{Handles, fresh};

/// How many limits there are that can be set.
pub const LIMITS: usize = 7;

/// What is set on one.
#[derive(Clone, Copy)]
pub struct Context {
    /// How a thread waits, of which nothing comes.
    pub flags: u32,
    /// Of the API that it was made by.
    pub version: u32,
    /// By number, those that a kernel would have.
    pub limits: [usize; LIMITS],
    /// What caches would be preferred for.
    pub cache: i32,
    /// How wide the banks of shared memory would be.
    pub banks: i32,
}

/// The version that contexts have since CUDA 3.2.
const VERSION: u32 = 3020;

impl Context {
    fn new(flags: u32) -> Self {
        // As CUDA has them at first: of a thread's stack, of what kernels print, of their heap; the next is of kernels
        // that begin others; how many of those; the granularity of fetches to the cache, and how much of it is set aside.
        let limits = [1024, 1 << 20, 8 << 20, 2, 2048, 64, 0];
        Self { flags, version: VERSION, limits, cache: 0, banks: 0 }
    }
}

/// Those that there are.
static CONTEXTS: Handles<Context> = Handles::new();

/// The one that the runtime works in. Its handle is the same ever after, and is no context while it is not active.
struct Primary {
    /// How often it was retained.
    retained: u64,
    /// Did the runtime?
    by_runtime: bool,
    /// What it has when it becomes active.
    flags: u32,
}

static PRIMARY: Mutex<Primary> = Mutex::new(Primary { retained: 0, by_runtime: false, flags: 0 });

fn primary() -> MutexGuard<'static, Primary> {
    PRIMARY.lock().unwrap_or_else(PoisonError::into_inner)
}

fn primary_handle() -> u64 {
    static HANDLE: OnceLock<u64> = OnceLock::new();
    *HANDLE.get_or_init(fresh)
}

thread_local! {
    /// The thread's contexts, the current one last.
    static STACK: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// None in a thread that ends.
fn with_stack<R>(look: impl FnOnce(&mut Vec<u64>) -> R) -> Option<R> {
    STACK.try_with(|stack| Some(look(&mut *stack.try_borrow_mut().ok()?))).ok().flatten()
}

/// The context that is current, be it one or no more; none where none is.
pub fn top() -> Option<u64> {
    with_stack(|stack| stack.last().copied()).flatten()
}

/// The current one.
///
/// # Errors
/// `INVALID_CONTEXT` where none is, `CONTEXT_IS_DESTROYED` where it has ended, or is the primary one and not active.
pub fn current() -> Result<u64, Error> {
    let top = top().ok_or(Error::INVALID_CONTEXT)?;
    get(top).map(|_| top).map_err(|_| Error::CONTEXT_IS_DESTROYED)
}

/// Is there this one?
///
/// # Errors
/// `INVALID_CONTEXT` where there is not.
pub fn get(context: u64) -> Result<Context, Error> {
    CONTEXTS.get(context).ok_or(Error::INVALID_CONTEXT)
}

/// Sets something on one.
///
/// # Errors
/// As [`get`].
pub fn set(context: u64, set: Context) -> Result<(), Error> {
    CONTEXTS.set(context, set).ok_or(Error::INVALID_CONTEXT)
}

/// What the runtime does before it works: where none is current, the primary one becomes active, and current.
///
/// # Errors
/// `NO_DEVICE` without one; `CONTEXT_IS_DESTROYED` where another one is current, and has ended.
pub fn enter(session: &Session<'_>) -> Result<(), Error> {
    super::initialise(session)?;
    match top() {
        Some(top) if get(top).is_ok() => Ok(()),
        Some(other) if other != primary_handle() => Err(Error::CONTEXT_IS_DESTROYED),
        top => {
            start(session)?;
            if top.is_none() {
                make_current(Some(primary_handle()));
            }
            Ok(())
        }
    }
}

/// Has the primary one be active for the runtime, and makes it current nowhere.
///
/// # Errors
/// `NO_DEVICE` without one.
pub fn start(session: &Session<'_>) -> Result<(), Error> {
    super::initialise(session)?;
    let mut primary = primary();
    primary.retained += u64::from(!primary.by_runtime);
    primary.by_runtime = true;
    activate(&primary);
    Ok(())
}

/// Has the primary one be active for the runtime, and current, whatever was.
///
/// # Errors
/// As [`start`].
pub fn select(session: &Session<'_>) -> Result<(), Error> {
    start(session)?;
    make_current(Some(primary_handle()));
    Ok(())
}

/// Makes a new one current, on top of those that the thread has.
///
/// # Errors
/// `INVALID_VALUE` for flags that there are not.
pub fn create(flags: u32) -> Result<u64, Error> {
    let context = CONTEXTS.create(Context::new(checked(flags)?));
    with_stack(|stack| stack.push(context));
    Ok(context)
}

/// The flags, of which one is how to wait, and the others are whether memory is mapped, how much of it is local, and whether
/// copies and fills are waited for, which comes to nothing where order is total.
///
/// # Errors
/// `INVALID_VALUE` for others, or more than one way to wait.
pub fn checked(flags: u32) -> Result<u32, Error> {
    const WAITING: u32 = 7;
    const OTHERS: u32 = 8 | 16 | 128;
    if flags & !(WAITING | OTHERS) != 0 || (flags & WAITING).count_ones() > 1 {
        return Err(Error::INVALID_VALUE);
    }
    Ok(flags)
}

/// Ends one, and all that is its. It remains current in other threads, to their harm.
///
/// # Errors
/// `INVALID_CONTEXT` where there is no such, or it is the primary one; of the way to the worker.
pub fn destroy(session: &Session<'_>, context: u64) -> Result<(), Error> {
    if context == primary_handle() {
        return Err(Error::INVALID_CONTEXT);
    }
    CONTEXTS.destroy(context).ok_or(Error::INVALID_CONTEXT)?;
    with_stack(|stack| stack.pop_if(|top| *top == context));
    Ended::of(context).give_back(session)
}

/// What was a context's: events that the worker has moments of, and memory of the host and the device.
#[derive(Default)]
struct Ended {
    events: Vec<u64>,
    host: Vec<u64>,
    memory: Vec<u64>,
}

impl Ended {
    /// Takes it away from the context.
    fn of(context: u64) -> Self {
        stream::end_of(context);
        let [events, host, memory] = [event::end_of(context), host::end_of(context), memory::end_of(context)];
        Self { events, host, memory }
    }

    /// Gives all of it back, whatever becomes of one. This waits, and so not while anybody waits for a lock.
    fn give_back(self, session: &Session<'_>) -> Result<(), Error> {
        let events = self.events.into_iter().map(|event| session.forget(event));
        let host = self.host.into_iter().map(|address| session.free_host(address));
        let memory = self.memory.into_iter().map(|address| session.free(address));
        let given: Vec<cudnn::Result> = events.chain(host).chain(memory).collect();
        Ok(given.into_iter().collect::<cudnn::Result>()?)
    }
}

/// Replaces the current context by another, or by the one before it.
fn make_current(context: Option<u64>) {
    with_stack(|stack| {
        stack.pop();
        stack.extend(context);
    });
}

/// Makes one current instead of the one that is; without one, that which was before it.
///
/// # Errors
/// `INVALID_CONTEXT` where there is no such.
pub fn set_current(context: Option<u64>) -> Result<(), Error> {
    context.map_or(Ok(()), known)?;
    make_current(context);
    Ok(())
}

/// Makes one current, until it is popped.
///
/// # Errors
/// As [`set_current`].
pub fn push(context: u64) -> Result<(), Error> {
    known(context)?;
    with_stack(|stack| stack.push(context));
    Ok(())
}

/// The primary one may be made current while it is not active.
fn known(context: u64) -> Result<(), Error> {
    if context == primary_handle() { Ok(()) } else { get(context).map(|_| ()) }
}

/// Ends that the current one is.
///
/// # Errors
/// `INVALID_CONTEXT` where none is.
pub fn pop() -> Result<u64, Error> {
    with_stack(Vec::pop).flatten().ok_or(Error::INVALID_CONTEXT)
}

fn activate(primary: &Primary) {
    if !is_active() {
        CONTEXTS.insert(primary_handle(), Context::new(primary.flags));
    }
}

/// Is the primary one?
pub fn is_active() -> bool {
    get(primary_handle()).is_ok()
}

/// The primary one, which is active until it was released as often.
pub fn retain() -> u64 {
    let mut primary = primary();
    primary.retained += 1;
    activate(&primary);
    primary_handle()
}

/// Takes one retain back; with the last, what is the primary one's ends.
///
/// # Errors
/// `INVALID_CONTEXT` where there is none; of the way to the worker.
pub fn release(session: &Session<'_>) -> Result<(), Error> {
    release_one()?.give_back(session)
}

fn release_one() -> Result<Ended, Error> {
    let mut primary = primary();
    primary.retained = primary.retained.checked_sub(1).ok_or(Error::INVALID_CONTEXT)?;
    if primary.retained > 0 {
        return Ok(Ended::default());
    }
    primary.by_runtime = false;
    Ok(deactivate(&primary))
}

/// Ends what is the primary one's. It stays retained, and is active again when it is next retained, or the runtime works.
///
/// # Errors
/// Of the way to the worker.
pub fn reset(session: &Session<'_>) -> Result<(), Error> {
    let ended = deactivate(&primary());
    ended.give_back(session)
}

fn deactivate(_: &Primary) -> Ended {
    let context = primary_handle();
    CONTEXTS.destroy(context).map_or_else(Ended::default, |_| Ended::of(context))
}

/// The primary one's flags.
pub fn primary_flags() -> u32 {
    get(primary_handle()).map_or_else(|_| primary().flags, |context| context.flags)
}

/// Sets the primary one's flags.
///
/// # Errors
/// `INVALID_VALUE` for flags that there are not.
pub fn set_primary_flags(flags: u32) -> Result<(), Error> {
    let flags = checked(flags)?;
    primary().flags = flags;
    match get(primary_handle()) {
        Ok(context) => set(primary_handle(), Context { flags, ..context }),
        Err(_) => Ok(()),
    }
}
