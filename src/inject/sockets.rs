//! The sockets of the driver's daemons, each mounted at the path where programs look for it: they look nowhere else.
//!
//! Part of [`live`](super::live), and by its rules: what was opened and checked on the host is cloned there, and
//! the child in the container's mount namespace attaches it.

use std::os::fd::OwnedFd;

use rustix::fs::{FileType, OFlags};

use super::detached::{self, Use};
use super::files::{read_back, take};
use super::place::{Id, Place, id};
use crate::driver::DriverFile;
use crate::error::{Exit, OrExit, Result};
use crate::resolve::Socket;

/// A socket of a plan, opened.
#[derive(Debug)]
pub(super) struct OpenSocket {
    socket: Socket,
    fd: OwnedFd,
    id: Id,
}

/// Joins each socket of a plan with the descriptor that was opened when it was found.
pub(super) fn open(planned: Vec<Socket>, found: &mut Vec<DriverFile>) -> Result<Vec<OpenSocket>> {
    let join = |socket: Socket| {
        let fd = take(found, &socket.source)?;
        let id = id(&fd).or_exit(Exit::Io, || format!("cannot look at {}", socket.source))?;
        Ok(OpenSocket { socket, fd, id })
    };
    planned.into_iter().map(join).collect()
}

/// The sockets, still mounted nowhere.
pub(super) struct Detached<'a> {
    sockets: &'a [OpenSocket],
    /// One for each.
    clones: Vec<OwnedFd>,
}

impl<'a> Detached<'a> {
    /// Clones their mounts.
    pub fn new(sockets: &'a [OpenSocket]) -> Result<Self> {
        let clone = |socket: &OpenSocket| detached::clone(&socket.fd, Use::File, &socket.socket.source);
        Ok(Self { sockets, clones: sockets.iter().map(clone).collect::<Result<_>>()? })
    }

    /// Mounts all of them, but one that the container has already, because the host's directory is mounted there.
    pub fn attach(&self, container: &Place) -> Result<()> {
        for (socket, clone) in self.sockets.iter().zip(&self.clones) {
            let path = &socket.socket.path;
            if container.open(path, OFlags::PATH).and_then(id) == Ok(socket.id) {
                continue;
            }
            let (holder, name) = container.target(path, FileType::RegularFile)?;
            holder.make(name, FileType::RegularFile)?;
            holder.mount(name, FileType::RegularFile, clone)?;
        }
        Ok(())
    }

    /// Looks again, through the root.
    pub fn read_back(&self, container: &Place) -> Result<()> {
        self.sockets
            .iter()
            .try_for_each(|one| read_back(container, &one.socket.path, one.id, &one.socket.source))
    }
}
