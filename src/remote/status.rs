//! What a worker says of itself and of its clients to whoever asks (docs/reuse.md, "Counters"). Asks; changes nothing.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use serde::{Deserialize, Serialize};

use super::worker::{name, open_directory, path};
use crate::pool::Lease;
use crate::pool::store::StateDir;

/// How long `vgpu status` waits for a worker.
const PATIENCE: Duration = Duration::from_secs(1);

/// The longest answer, in bytes.
const ANSWER: usize = 64 << 10;

/// What a worker is asked in place of a client's greeting (docs/reuse.md): what it has done so far.
const STATUS: [u8; 8] = *b"vgpustat";

/// What a worker says of itself and of its clients (docs/reuse.md). The counters are what the container's own processes
/// say: it may lie.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// What computes.
    pub backend: String,
    /// Device memory, in bytes.
    pub memory: Memory,
    /// Processes that are or were served.
    pub processes: Processes,
    /// What they all count together.
    pub counters: Counters,
    /// What they called that is not supported.
    pub unserved: Unserved,
}

/// See [`Status::memory`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// All that there is for the container.
    pub limit: u64,
    /// How much of it is allocated.
    pub used: u64,
}

/// See [`Status::processes`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Processes {
    /// Now.
    pub live: u64,
    /// Since the worker has started.
    pub ever: u64,
}

/// See [`Status::counters`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Calls of the API.
    pub calls: u64,
    /// Records, that is calls that were sent to the worker.
    pub records: u64,
    /// How often it was woken for them.
    pub wakeups: u64,
    /// Descriptors whose content was as predicted.
    pub predicted: u64,
    /// Those whose content was known.
    pub known: u64,
    /// Those of a new content.
    pub new: u64,
    /// Bytes that were copied to and from the device.
    pub bytes: u64,
}

/// See [`Status::unserved`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unserved {
    /// How often, by name.
    pub functions: BTreeMap<String, u64>,
    /// How often others than those that are named.
    pub others: u64,
}

/// What the worker of a lease says.
///
/// # Errors
/// The kernel's, where there is none or it does not answer within a second.
pub fn of(state_dir: &StateDir, lease: &Lease) -> io::Result<Status> {
    Ok(serde_json::from_str(&ask(open_directory(state_dir)?.as_fd(), &name(lease), PATIENCE)?)?)
}

/// Asks a worker how it is, and waits for all of its answer, for so long. One whose container keeps it busy with
/// connections is not waited for.
pub(super) fn ask(directory: BorrowedFd<'_>, name: &str, patience: Duration) -> io::Result<String> {
    let end = Instant::now() + patience;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path(directory, name))?)?;
    let mut stream = UnixStream::from(socket);
    stream.write_all(&STATUS)?;
    stream.set_nonblocking(false)?;
    let (mut answer, mut part) = (Vec::new(), [0; 4096]);
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || answer.len() > ANSWER {
            return Err(io::Error::new(
                ErrorKind::TimedOut,
                format!("nothing within {} s", patience.as_secs()),
            ));
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut part) {
            Ok(0) if answer.is_empty() => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(0) => return String::from_utf8(answer).map_err(io::Error::other),
            Ok(n) => answer.extend(&part[..n]),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(e) => return Err(e),
        }
    }
}
