//! All `unsafe` of this crate: memory that processes share, sleeping on a word of it, and addresses that are kept free.
#![allow(unsafe_code)]

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use rustix::thread::futex;

/// Shared memory of whole words, mapped; unmapped when dropped.
#[derive(Debug)]
pub struct Shared {
    fd: OwnedFd,
    start: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: it is memory that any thread may reach, of atomics.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// What nobody can do any more to the memory: cut it, so that reading it would kill the process.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

impl Shared {
    /// New memory of so many words, all zero.
    ///
    /// # Errors
    /// As memfd_create(2) and mmap(2).
    pub fn new(words: usize) -> io::Result<Self> {
        let fd = memfd_create("vgpu", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&fd, (words * size_of::<AtomicU64>()) as u64)?;
        fcntl_add_seals(&fd, SEALS)?;
        Self::map(fd, words)
    }

    /// Memory that a peer made.
    ///
    /// # Errors
    /// `InvalidData` where it is not of so many words, or the peer could still cut it; and as mmap(2).
    pub fn open(fd: OwnedFd, words: usize) -> io::Result<Self> {
        let whole = fstat(&fd)?.st_size as usize == words * size_of::<AtomicU64>();
        // Of a file that is no memfd there are no seals to be had.
        if !whole || !fcntl_get_seals(&fd).is_ok_and(|seals| seals.contains(SEALS)) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "not the memory that was agreed upon"));
        }
        Self::map(fd, words)
    }

    fn map(fd: OwnedFd, words: usize) -> io::Result<Self> {
        let (bytes, access) = (words * size_of::<AtomicU64>(), ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: a new mapping at a place of the kernel's choice; it overlaps nothing.
        let start = unsafe { mmap(std::ptr::null_mut(), bytes, access, MapFlags::SHARED, &fd, 0) }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::Other)?;
        Ok(Self { fd, start, words })
    }

    /// Its words.
    #[must_use]
    pub fn region(&self) -> &[AtomicU64] {
        // SAFETY: page-aligned, mapped as long as `self` lives, and sealed at its size. Any bits are an AtomicU64,
        // and whoever else has it mapped can change it only as one changes atomics: this process never makes
        // another reference to it.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }
}

impl AsFd for Shared {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: `map` mapped exactly this, and no borrow of it outlives `self`.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.words * size_of::<AtomicU64>()) };
    }
}

/// Addresses that nothing else of this process will be at, and where nothing can be read or written: those of device
/// memory, in a client. They are free again when dropped.
#[derive(Debug)]
pub struct Reserved {
    start: usize,
    bytes: usize,
}

impl Reserved {
    /// These addresses, of whole pages.
    ///
    /// # Errors
    /// As mmap(2); EEXIST where something is there already.
    pub fn new(addresses: Range<u64>) -> io::Result<Self> {
        let (start, end) = (addresses.start as usize, addresses.end as usize);
        let bytes = end.checked_sub(start).ok_or(io::ErrorKind::InvalidInput)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
        let at = std::ptr::without_provenance_mut(start);
        // SAFETY: a mapping that replaces nothing, and that nobody can reach into.
        let mapped = unsafe { mmap_anonymous(at, bytes, ProtFlags::empty(), flags) }?;
        let reserved = Self { start: mapped.addr(), bytes };
        // Kernels before 4.17 take the address for a wish.
        if reserved.start == start { Ok(reserved) } else { Err(io::ErrorKind::AddrInUse.into()) }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        // SAFETY: `new` mapped exactly this, and nobody reaches into it.
        let _ = unsafe { munmap(std::ptr::without_provenance_mut(self.start), self.bytes) };
    }
}

/// Sleeps while the low half of `word` is `expected`, until somebody wakes it, or for so long. It may also wake for
/// nothing.
pub fn futex_wait(word: &AtomicU64, expected: u32, at_most: Duration) {
    let timeout = rustix::thread::Timespec::try_from(at_most).ok();
    // EAGAIN, EINTR and ETIMEDOUT are all reasons to look again.
    let _ = futex::wait(low_half(word), futex::Flags::empty(), expected, timeout.as_ref());
}

/// Wakes all who sleep on `word`, in any process.
pub fn futex_wake(word: &AtomicU64) {
    let _ = futex::wake(low_half(word), futex::Flags::empty(), i32::MAX as u32);
}

fn low_half(word: &AtomicU64) -> &AtomicU32 {
    let first = std::ptr::from_ref(word).cast::<AtomicU32>();
    let half = if cfg!(target_endian = "little") { first } else { first.wrapping_add(1) };
    // SAFETY: within `word`, aligned, and alive as long. It is only handed to the kernel, which reads it atomically.
    unsafe { &*half }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn both_mappings_are_the_same_memory() {
        let ours = Shared::new(100).unwrap();
        let theirs = Shared::open(ours.as_fd().try_clone_to_owned().unwrap(), 100).unwrap();
        ours.region()[99].store(7, Ordering::Relaxed);
        assert_eq!(theirs.region()[99].load(Ordering::Relaxed), 7);
        assert_eq!(theirs.region().len(), 100);
    }

    #[test]
    fn memory_of_another_size_or_that_could_be_cut_is_refused() {
        let ours = Shared::new(100).unwrap();
        let fd = || ours.as_fd().try_clone_to_owned().unwrap();
        assert_eq!(Shared::open(fd(), 101).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert!(ftruncate(fd(), 0).is_err(), "sealed");
        let open = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&open, 800).unwrap();
        assert_eq!(Shared::open(open, 100).unwrap_err().kind(), io::ErrorKind::InvalidData);
        let file = tempfile::tempfile().unwrap();
        file.set_len(800).unwrap();
        assert_eq!(Shared::open(file.into(), 100).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn addresses_are_reserved_once_and_free_again() {
        const THERE: Range<u64> = 0x1000_0000_0000..0x1040_0000_0000;
        let reserved = Reserved::new(THERE).unwrap();
        assert!(Reserved::new(THERE.start + 4096..THERE.start + 8192).is_err());
        drop(reserved);
        Reserved::new(THERE).unwrap();
    }

    #[test]
    fn a_sleeper_is_woken_through_the_other_mapping() {
        let ours = Shared::new(1).unwrap();
        let theirs = Shared::open(ours.as_fd().try_clone_to_owned().unwrap(), 1).unwrap();
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| {
                while ours.region()[0].load(Ordering::Acquire) == 0 {
                    futex_wait(&ours.region()[0], 0, Duration::from_secs(60));
                }
            });
            theirs.region()[0].store(1, Ordering::Release);
            futex_wake(&theirs.region()[0]);
            sleeper.join().unwrap();
        });
    }
}
