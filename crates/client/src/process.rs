//! What there is once in a process, and once in each of its threads.

use std::cell::Cell;
use std::env;
use std::io::ErrorKind;
use std::mem::ManuallyDrop;
use std::path::Path;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering, compiler_fence};

use vgpu_remoting::channel::{Channel, Client, reach};
use vgpu_remoting::counters::{Block, Counter, Counts};
use vgpu_remoting::cudnn::Status;
use vgpu_remoting::reuse::{Reuse, Thread};
use vgpu_remoting::session::{Mode, Session};
use vgpu_remoting::slots::MAX_SLOTS;
use zerocopy::FromZeros;

use crate::sys::kept;
use crate::{log, sys, unserved};

/// Where a container's worker listens, without `VGPU_WORKER`.
const SOCKET: &str = "/dev/vgpu/worker";

static SESSION: OnceLock<Session<'static>> = OnceLock::new();

/// Is this a child of a process that had begun?
static FORKED: AtomicBool = AtomicBool::new(false);

/// Makes a call of this process's.
///
/// # Errors
/// The call's. `NotInitialized` in a child of a process that had begun: it may find its parent's locks held by threads
/// that it does not have, and its worker is its parent's. So nothing of it is touched.
#[inline]
pub fn call<E: From<Status>>(call: impl FnOnce(&'static Session<'static>) -> Result<(), E>) -> Result<(), E> {
    let Some(session) = kept(|kept| kept.session.get()).or_else(enter) else {
        return Err(Status::NotInitialized.into());
    };
    session.reuse().counters().count(kept(|kept| kept.counts.get()), Counter::Calls);
    let result = call(session);
    if result.is_err() {
        tell_of_the_end();
    }
    result
}

/// The same of a call that wants what the thread keeps for itself.
///
/// # Errors
/// As [`call`].
#[inline]
pub fn call_with_thread<E: From<Status>>(
    call: impl FnOnce(&'static Session<'static>, &mut Thread<'static>) -> Result<(), E>,
) -> Result<(), E> {
    self::call(|session| {
        // There is none in a call from a signal that has interrupted another.
        let mut own = replace(None).unwrap_or_else(|| Own::new(session));
        let result = call(session, &mut own.thread);
        keep(own);
        result
    })
}

/// The same of one that ends what a process has. A child has none of its own, and its parent's end with it.
///
/// # Errors
/// The call's.
#[inline]
pub fn end<E: From<Status>>(call: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
    call().or_else(|error| if is_forked() { Ok(()) } else { Err(error) })
}

/// What a thread has from its first call on, until it ends. At first it is zero: it has nothing. It has no destructor, so
/// that nothing is asked when it is used.
#[derive(FromZeros)]
pub struct Kept {
    /// None in a forked child.
    session: Cell<Option<&'static Session<'static>>>,
    /// Where it counts for itself, which is where `own` does.
    counts: Cell<Option<&'static Block>>,
    /// But while the thread is in a call that wants it.
    own: Cell<ManuallyDrop<Option<Box<Own>>>>,
}

/// What the thread keeps for itself, which goes back to where it is from.
struct Own {
    thread: Thread<'static>,
}

impl Own {
    #[cold]
    fn new(session: &Session<'static>) -> Box<Self> {
        Box::new(Self { thread: session.enter() })
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // A thread that goes on, as after a panic, counts with the others: the block goes to another thread.
        kept(|kept| {
            if kept.counts.get().map(ptr::from_ref) == self.thread.counts().map(ptr::from_ref) {
                kept.counts.set(None);
            }
        });
        if let Some(session) = SESSION.get().filter(|_| !is_forked()) {
            session.leave(&mut self.thread);
        }
    }
}

/// None in a forked child.
#[cold]
fn enter() -> Option<&'static Session<'static>> {
    if is_forked() {
        return None;
    }
    let session = SESSION.get_or_init(begin);
    // Of a thread that ends already nothing is kept: its end would not be seen again. Neither is that of one whose first
    // call comes when its thread-local values are gone already, from the destructor of a key; what it keeps stays.
    if END.try_with(|_| ()).is_ok() {
        let own = Own::new(session);
        kept(|kept| {
            kept.counts.set(own.thread.counts());
            kept.session.set(Some(session));
        });
        keep(own);
    }
    Some(session)
}

/// Puts it back. What a signal's call has put there meanwhile is given up; and this, of a thread that ends.
#[inline]
fn keep(own: Box<Own>) {
    let others = if kept(|kept| kept.session.get()).is_some() { replace(Some(own)) } else { Some(own) };
    if others.is_some() {
        give_up(others);
    }
}

/// Has the thread keep that, and gives what it has kept. A signal that interrupts it after what comes before, or before
/// what comes after, finds it so. Of one whose handler calls between the two instructions in it, what the handler's call
/// has kept is lost: some free slots, and a block of counters.
#[inline]
fn replace(own: Option<Box<Own>>) -> Option<Box<Own>> {
    compiler_fence(Ordering::SeqCst);
    let kept = kept(|kept| kept.own.replace(ManuallyDrop::new(own)));
    compiler_fence(Ordering::SeqCst);
    ManuallyDrop::into_inner(kept)
}

#[cold]
fn give_up(_: Option<Box<Own>>) {}

thread_local! {
    /// Dropped when the thread ends.
    static END: End = const { End };
}

struct End;

impl Drop for End {
    fn drop(&mut self) {
        kept(|kept| kept.session.set(None));
        give_up(replace(None));
    }
}

const GONE: &str =
    "the container's worker is gone, and is not replaced; nothing can be computed before a new start";

const ENDED: &str = "the container's worker is gone, or does not serve this process any more; nothing can be computed in it: \
                     start the program again, or else the container (the host's `vgpu status` says whether the worker is \
                     there, `log` in its state directory may say why)";

/// Says so once, if there was one: the error of a call alone looks as if the program were to blame. Nothing is asked of
/// the system, in whatever state the program is.
#[cold]
fn tell_of_the_end() {
    static SAID: AtomicBool = AtomicBool::new(false);
    let had_one = |session: &&Session<'_>| !session.client().channel().device().is_empty();
    let ended = SESSION.get().filter(had_one).is_some_and(|session| session.client().is_gone());
    if ended && !SAID.swap(true, Ordering::Relaxed) {
        log(ENDED);
    }
}

/// What this process has counted, which is nothing before its first call.
pub fn counts() -> Counts {
    let session = SESSION.get().filter(|_| !is_forked());
    session.map(|session| session.reuse().counters().counts()).unwrap_or_default()
}

/// Is this a child of a process that had begun?
pub fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// In the one thread that the child has.
extern "C" fn forked_child() {
    FORKED.store(true, Ordering::Relaxed);
    kept(|kept| kept.session.set(None));
}

#[cold]
fn begin() -> Session<'static> {
    sys::in_forked_children(forked_child);
    let mode = match env::var("VGPU_REUSE").as_deref() {
        Ok("off") => Mode::Forward,
        Ok("off,waiting") => Mode::ForwardAndWait,
        Ok("") | Err(env::VarError::NotPresent) => Mode::Reuse,
        _ => {
            log("VGPU_REUSE is neither off nor off,waiting: descriptors are reused");
            Mode::Reuse
        }
    };
    let channel: &Channel = Box::leak(Box::new(channel()));
    unserved::tell(channel.counters());
    let reuse = Reuse::new(MAX_SLOTS, channel.contents(), channel.counters());
    let session = Session::new(mode, reuse, Client::new(channel));
    // As the driver has it ("CUDA C++ Programming Guide", CUDA Environment Variables).
    if env::var_os("CUDA_LAUNCH_BLOCKING").is_some_and(|value| value == "1") {
        session.blocking()
    } else {
        session
    }
}

/// To the container's worker. Without one, descriptors are as they are, and what would be sent fails.
fn channel() -> Channel {
    let socket = env::var("VGPU_WORKER").unwrap_or_else(|_| SOCKET.into());
    reach(Path::new(&socket)).and_then(Channel::connect).unwrap_or_else(|error| {
        match error.kind() {
            // Nobody listens at what is there.
            ErrorKind::ConnectionRefused => log(GONE),
            _ => log(&format!("no worker at {socket:?}: {error}; nothing can be computed")),
        }
        Channel::nobodys().expect("memory for contents")
    })
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    /// The block that it had goes to another thread, which counts without a look at who else does.
    #[test]
    fn after_a_panic_a_thread_counts_with_the_others() {
        let has_block = || kept(|kept| kept.counts.get().is_some());
        assert_eq!(call(|_| Ok::<_, Status>(())), Ok(()));
        assert!(has_block());
        let panics = || call_with_thread(|_, _| -> Result<(), Status> { panic!("as none should") });
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        assert!(!has_block());
    }
}
