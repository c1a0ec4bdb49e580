//! What there is once in a process, and once in each of its threads.

use std::env;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Once, OnceLock};

use vgpu_remoting::channel::{Channel, Client, reach};
use vgpu_remoting::counters::Counts;
use vgpu_remoting::cudnn::Status;
use vgpu_remoting::reuse::{Reuse, Thread};
use vgpu_remoting::session::{Mode, Session};
use vgpu_remoting::slots::MAX_SLOTS;

use crate::{log, sys, unserved};

/// Where a container's worker listens, without `VGPU_WORKER`.
const SOCKET: &str = "/dev/vgpu/worker";

static SESSION: OnceLock<Session<'static>> = OnceLock::new();

/// Is this a child of a process that had begun?
static FORKED: AtomicBool = AtomicBool::new(false);

/// Makes a call of this process's, with what the thread keeps for itself.
///
/// # Errors
/// The call's. `NotInitialized` in a child of a process that had begun: it may find its parent's locks held by threads
/// that it does not have, and its worker is its parent's. So nothing of it is touched.
#[inline]
pub fn call<E: From<Status>>(
    call: impl FnOnce(&'static Session<'static>, &mut Thread) -> Result<(), E>,
) -> Result<(), E> {
    if is_forked() {
        return Err(Status::NotInitialized.into());
    }
    // There is none in the first call, and in one from a signal that has interrupted another.
    let mut entered = sys::replace_kept(None).unwrap_or_else(Entered::new);
    entered.session.called(&entered.thread);
    let result = call(entered.session, &mut entered.thread);
    let others = if entered.keeps { sys::replace_kept(Some(entered)) } else { Some(entered) };
    if others.is_some() {
        // What a signal's call has put there meanwhile; or this, since the thread ends.
        give_up(others);
    }
    if result.is_err() {
        tell_of_the_end();
    }
    result
}

#[cold]
fn give_up(_: Option<Box<Entered>>) {}

thread_local! {
    /// Dropped when the thread ends.
    static END: End = const { End };
}

struct End;

impl Drop for End {
    fn drop(&mut self) {
        give_up(sys::replace_kept(None));
    }
}

const GONE: &str =
    "the container's worker is gone, and is not replaced; nothing can be computed before a new start";

/// Says once that the worker is gone, if it was there: the error of a call alone looks as if the program were to blame.
#[cold]
fn tell_of_the_end() {
    static SAID: Once = Once::new();
    let had_one = |session: &&Session<'_>| !session.client().channel().device().is_empty();
    if SESSION.get().filter(had_one).is_some_and(|session| session.client().is_gone()) {
        SAID.call_once(|| log(GONE));
    }
}

/// What this process has counted, which is nothing before its first call.
pub fn counts() -> Counts {
    let session = SESSION.get().filter(|_| !is_forked());
    session.map(|session| session.reuse().counters().counts()).unwrap_or_default()
}

/// Is this a child of a process that had begun?
#[inline]
pub fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

extern "C" fn forked_child() {
    FORKED.store(true, Ordering::Relaxed);
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
    Session::new(mode, Reuse::new(MAX_SLOTS, channel.contents()), Client::new(channel))
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

/// What a thread keeps, until it ends.
pub struct Entered {
    session: &'static Session<'static>,
    thread: Thread,
    /// Not one that ends already: its end would not be seen again.
    keeps: bool,
}

impl Entered {
    #[cold]
    fn new() -> Box<Self> {
        let session = SESSION.get_or_init(begin);
        Box::new(Self { session, thread: session.enter(), keeps: END.try_with(|_| ()).is_ok() })
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        if !is_forked() {
            self.session.leave(&mut self.thread);
        }
    }
}
