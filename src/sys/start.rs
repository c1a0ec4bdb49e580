//! How the program starts: as C's do, without the standard library's beginning. That reads `/proc/self/maps` to find
//! the end of the main thread's stack, for a nicer message when it overflows; it costs each start of a hook a tenth of
//! a millisecond, a third of all that a container without a request waits. What else it does is done here.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::panic::catch_unwind;

use rustix::fs::{Mode, OFlags};

/// What a program ends in that has panicked, as the standard library has it.
const PANICKED: c_int = 101;

/// What the C library's `main` does: makes ready, and runs the program. Its exit code.
pub fn run(program: fn() -> u8) -> c_int {
    if open_standard_descriptors().is_err() {
        return PANICKED;
    }
    // A reader that went away is an error of write(2), not the end of the program half-way.
    // SAFETY: no other thread runs yet, and SIG_IGN is no function that could be wrong.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    catch_unwind(program).map_or(PANICKED, c_int::from)
}

/// One that is closed would be the number of the next file that is opened, and what is printed would go there.
fn open_standard_descriptors() -> std::io::Result<()> {
    let mut descriptors = [0, 1, 2].map(|fd| libc::pollfd { fd, events: 0, revents: 0 });
    // SAFETY: the kernel writes to the three entries that it is told of, and nothing more. Numbers that are closed are
    // what it is asked about.
    if unsafe { libc::poll(descriptors.as_mut_ptr(), 3, 0) } < 0 {
        return Err(std::io::Error::last_os_error());
    }
    for _ in descriptors.iter().filter(|fd| fd.revents & libc::POLLNVAL != 0) {
        // The lowest number that is closed: one of these.
        let null = rustix::fs::open("/dev/null", OFlags::RDWR, Mode::empty())?;
        std::mem::forget(null);
    }
    Ok(())
}
