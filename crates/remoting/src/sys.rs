//! All `unsafe` of this crate: memory that processes share, sleeping on a word of it, addresses that are kept free, memory
//! that is given back in parts, descriptors that a process was started with, and who is at a socket's other end.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::{Deref, DerefMut, Range};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, fstat, fstatfs,
    ftruncate, memfd_create,
};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::thread::futex;
use zerocopy::FromZeros;

/// Memory, mapped; unmapped when dropped.
#[derive(Debug)]
pub struct Mapped<T = AtomicU64> {
    start: NonNull<T>,
    count: usize,
}

// SAFETY: it gives out references to what is in it, on whatever thread, and owns that.
unsafe impl<T: Send> Send for Mapped<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Mapped<T> {}

impl<T: FromZeros> Mapped<T> {
    /// New memory of this process alone, of so many, all zero. The system gives it as it is first used.
    ///
    /// # Errors
    /// As mmap(2).
    pub fn alone(count: usize) -> io::Result<Self> {
        let bytes = count.checked_mul(size_of::<T>()).ok_or(io::ErrorKind::InvalidInput)?;
        Self::at(zeroed(bytes)?, count)
    }

    fn at(start: *mut libc::c_void, count: usize) -> io::Result<Self> {
        const { assert!(align_of::<T>() <= 4096) };
        Ok(Self { start: NonNull::new(start.cast()).ok_or(io::ErrorKind::Other)?, count })
    }

    /// What is in it.
    #[inline]
    #[must_use]
    pub fn region(&self) -> &[T] {
        // SAFETY: page-aligned, mapped as long as `self` lives, and of a file only what is sealed at its size, which is
        // of atomics: any bits are one, and whoever else has it mapped can change it only as one changes atomics. Else
        // it was zero, which is a `T`. This process never makes another reference to it.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }
}

impl<T> Mapped<T> {
    fn bytes(count: usize) -> usize {
        count * size_of::<T>()
    }
}

impl Mapped {
    /// The first words of a file, which is sealed at its size and has as many.
    fn of(file: &OwnedFd, words: usize) -> io::Result<Self> {
        let (bytes, access) = (Self::bytes(words), ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: a new mapping at a place of the kernel's choice; it overlaps nothing.
        let start = unsafe { mmap(std::ptr::null_mut(), bytes, access, MapFlags::SHARED, file, 0) }?;
        Self::at(start, words)
    }
}

impl<T> Drop for Mapped<T> {
    fn drop(&mut self) {
        #[cfg(not(miri))]
        // SAFETY: `alone` or `of` mapped exactly this, and no borrow of it outlives `self`.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), Self::bytes(self.count)) };
    }
}

#[cfg(not(miri))]
fn zeroed(bytes: usize) -> io::Result<*mut libc::c_void> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at a place of the kernel's choice; it overlaps nothing.
    Ok(unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, access, MapFlags::PRIVATE) }?)
}

/// `miri` has no mappings. What it has instead stays.
#[cfg(miri)]
fn zeroed(bytes: usize) -> io::Result<*mut libc::c_void> {
    let layout = std::alloc::Layout::from_size_align(bytes, 4096).map_err(io::Error::other)?;
    // SAFETY: of a size that is not 0, as all that is mapped here.
    Ok(unsafe { std::alloc::alloc_zeroed(layout) }.cast())
}

/// Memory that processes share, mapped. The file that it is of may have more, of which a peer maps parts, or nobody
/// anything.
#[derive(Debug)]
pub struct Shared {
    file: File,
    mapped: Mapped,
}

/// What nobody can do any more to the memory: cut it, so that reading it would kill the process.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Of ordinary memfds, statfs(2). Those of huge pages can fail when they are read.
const TMPFS: u64 = 0x0102_1994;

impl Shared {
    /// New memory of so many words, all zero, in a file of at least as many bytes. The system gives the memory as it is
    /// first used.
    ///
    /// # Errors
    /// As memfd_create(2) and mmap(2).
    pub fn new(words: usize, bytes: u64) -> io::Result<Self> {
        let fd = memfd_create("vgpu", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&fd, bytes.max(<Mapped>::bytes(words) as u64))?;
        fcntl_add_seals(&fd, SEALS)?;
        Self::map(fd, words)
    }

    /// Memory that a peer made.
    ///
    /// # Errors
    /// `InvalidData` where it is not of so many words, or the peer could still cut it; and as mmap(2).
    pub fn open(fd: OwnedFd, words: usize) -> io::Result<Self> {
        let there = fstat(&fd)?.st_size.cast_unsigned() >= <Mapped>::bytes(words) as u64;
        let ordinary = fstatfs(&fd)?.f_type.cast_unsigned() == TMPFS;
        // Of a file that is no memfd there are no seals to be had.
        if !there || !ordinary || !fcntl_get_seals(&fd).is_ok_and(|seals| seals.contains(SEALS)) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "not the memory that was agreed upon"));
        }
        Self::map(fd, words)
    }

    fn map(fd: OwnedFd, words: usize) -> io::Result<Self> {
        let mapped = Mapped::of(&fd, words)?;
        Ok(Self { file: fd.into(), mapped })
    }

    /// The file that it is of. Its size stays as it is.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Makes these bytes of the file zero, and gives their memory back.
    ///
    /// # Errors
    /// As fallocate(2).
    pub fn discard(&self, bytes: &Range<u64>) -> io::Result<()> {
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(fallocate(&self.file, hole, bytes.start, bytes.end.saturating_sub(bytes.start))?)
    }

    /// Its words.
    #[must_use]
    pub fn region(&self) -> &[AtomicU64] {
        self.mapped.region()
    }
}

impl AsFd for Shared {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Bytes of a file in this process, for a program that knows only their address; unmapped when dropped.
#[derive(Debug)]
pub struct Lent {
    start: usize,
    bytes: usize,
}

impl Lent {
    /// So many, from a multiple of the page size on. Their memory is there at once.
    ///
    /// # Errors
    /// As mmap(2).
    pub fn new(file: &File, offset: u64, bytes: usize) -> io::Result<Self> {
        let (flags, access) = (MapFlags::SHARED | MapFlags::POPULATE, ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: a new mapping at a place of the kernel's choice; it overlaps nothing.
        let start = unsafe { mmap(std::ptr::null_mut(), bytes, access, flags, file, offset) }?;
        Ok(Self { start: start.expose_provenance(), bytes })
    }

    /// Where they are.
    #[must_use]
    pub fn address(&self) -> usize {
        self.start
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let start = std::ptr::with_exposed_provenance_mut(self.start);
        // SAFETY: `new` mapped exactly this. No reference of Rust's is into it: what a program does there after it has
        // given it back is its own fault, as of any memory.
        let _ = unsafe { munmap(start, self.bytes) };
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

/// Numbers of this process alone, each zero until it is written, of which the system gives a page as it is first used;
/// unmapped when dropped.
#[derive(Debug)]
pub struct Numbers {
    start: NonNull<f32>,
    count: usize,
}

// SAFETY: it is memory of plain numbers that nobody else has.
unsafe impl Send for Numbers {}
// SAFETY: as above.
unsafe impl Sync for Numbers {}

impl Numbers {
    /// So many.
    ///
    /// # Errors
    /// As mmap(2).
    pub fn new(count: usize) -> io::Result<Self> {
        let (flags, access) = (MapFlags::PRIVATE | MapFlags::NORESERVE, ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: a new mapping at a place of the kernel's choice; it overlaps nothing.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), Self::bytes(count), access, flags) }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::Other)?;
        Ok(Self { start, count })
    }

    /// There is no mapping of nothing.
    fn bytes(count: usize) -> usize {
        (count * size_of::<f32>()).max(1)
    }

    /// Makes these bytes of it zero, and gives their memory back. Of a range that is not of whole pages within it,
    /// nothing.
    pub fn discard(&mut self, bytes: Range<usize>) {
        if bytes.start >= bytes.end || bytes.end > self.count * size_of::<f32>() {
            return;
        }
        let at = self.start.as_ptr().cast::<u8>().wrapping_add(bytes.start);
        // SAFETY: within the mapping, which nobody has borrowed, and which reads as zeros there from now on.
        // The kernel refuses a start within a page; the caller's are whole pages of any size.
        let _ = unsafe { madvise(at.cast(), bytes.len(), Advice::LinuxDontNeed) };
    }
}

impl Deref for Numbers {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        // SAFETY: mapped as long as `self` lives, aligned to pages, and zeros are numbers.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }
}

impl DerefMut for Numbers {
    fn deref_mut(&mut self) -> &mut [f32] {
        // SAFETY: as above, and only `self` has it.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.count) }
    }
}

impl Drop for Numbers {
    fn drop(&mut self) {
        // SAFETY: `new` mapped exactly this, and no borrow of it outlives `self`.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), Self::bytes(self.count)) };
    }
}

/// A descriptor that this process was started with, by its number, as an argument names it. Its number is to be used
/// nowhere else. Programs that this one starts do not have it.
///
/// # Errors
/// EBADF where there is none, and for the three standard ones.
pub(crate) fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    if number <= 2 {
        return Err(Errno::BADF.into());
    }
    // SAFETY: not -1; only handed to the kernel, which says whether there is such a descriptor.
    fcntl_setfd(unsafe { BorrowedFd::borrow_raw(number) }, FdFlags::CLOEXEC)?;
    // SAFETY: it is open; that nobody else owns it is the caller's promise, as documented.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Closes all descriptors but the standard ones and those to `keep`, which exist.
///
/// # Errors
/// As close_range(2).
pub(crate) fn close_all_but(keep: &[RawFd]) -> io::Result<()> {
    let mut keep: Vec<u32> = keep.iter().map(|number| number.cast_unsigned()).collect();
    keep.sort_unstable();
    let ends = keep.iter().copied().chain([u32::MAX]);
    let begins = [3].into_iter().chain(keep.iter().map(|number| number + 1));
    for (begin, end) in begins.zip(ends).filter(|(begin, end)| begin < end) {
        // SAFETY: what owns a descriptor beyond those is nothing of this process, which its caller promises has opened
        // none: it has what it was started with.
        if unsafe { libc::syscall(libc::SYS_close_range, begin, end - 1, 0) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// The pidfd of the process that connected a Unix socket. The kernel knows it from then on, so that another one with its
/// number is not taken for it; before Linux 6.5 only the number is known.
///
/// # Errors
/// Of the system; `PermissionDenied` for a process that has no number here, so that it could not be seen to die.
pub fn peer(socket: impl AsFd) -> io::Result<OwnedFd> {
    const SO_PEERPIDFD: libc::c_int = 77;
    let nobody = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let peer = socket_option(socket.as_fd(), libc::SO_PEERCRED, nobody)?;
    let number = Pid::from_raw(peer.pid).ok_or_else(|| {
        io::Error::new(io::ErrorKind::PermissionDenied, "a process that is not to be seen from here")
    })?;
    match socket_option(socket.as_fd(), SO_PEERPIDFD, -1) {
        // SAFETY: the kernel has just made it for us.
        Ok(fd) => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {
            Ok(pidfd_open(number, PidfdFlags::empty())?)
        }
        Err(error) => Err(error),
    }
}

/// An option of a socket, which is numbers, and `value` before it is known.
fn socket_option<T: Copy>(socket: BorrowedFd<'_>, name: libc::c_int, mut value: T) -> io::Result<T> {
    let mut len = size_of::<T>() as libc::socklen_t;
    let (at, len) = ((&raw mut value).cast(), &raw mut len);
    // SAFETY: the kernel writes as many bytes as there are of `value` at most, and any are one.
    if unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, name, at, len) } == 0 {
        Ok(value)
    } else {
        Err(io::Error::last_os_error())
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
    use std::os::unix::fs::FileExt;
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn both_mappings_are_the_same_memory() {
        let ours = Shared::new(100, 0).unwrap();
        let theirs = Shared::open(ours.as_fd().try_clone_to_owned().unwrap(), 100).unwrap();
        ours.region()[99].store(7, Ordering::Relaxed);
        assert_eq!(theirs.region()[99].load(Ordering::Relaxed), 7);
        assert_eq!(theirs.region().len(), 100);
    }

    #[test]
    fn memory_of_another_size_or_that_could_be_cut_is_refused() {
        let ours = Shared::new(100, 0).unwrap();
        let fd = || ours.as_fd().try_clone_to_owned().unwrap();
        assert_eq!(Shared::open(fd(), 101).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert!(ftruncate(fd(), 0).is_err(), "sealed");
        let open = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&open, 800).unwrap();
        assert_eq!(Shared::open(open, 100).unwrap_err().kind(), io::ErrorKind::InvalidData);
        let file = tempfile::tempfile().unwrap();
        file.set_len(800).unwrap();
        assert_eq!(Shared::open(file.into(), 100).unwrap_err().kind(), io::ErrorKind::InvalidData);
        // Whoever reads one of huge pages, of which there may be none left, can be killed by it.
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
        let huge = memfd_create("test", flags).unwrap();
        ftruncate(&huge, 1 << 30).unwrap();
        fcntl_add_seals(&huge, SEALS).unwrap();
        assert_eq!(Shared::open(huge, 100).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn a_file_may_have_more_than_is_mapped_and_takes_up_what_is_used_of_it() {
        let ours = Shared::new(100, 1 << 40).unwrap();
        let theirs = Shared::open(ours.as_fd().try_clone_to_owned().unwrap(), 100).unwrap();
        assert_eq!(theirs.region().len(), 100);
        let lent = Lent::new(ours.file(), 1 << 39, 1 << 16).unwrap();
        theirs.file().write_all_at(&[7; 5], (1 << 39) + 3).unwrap();
        let blocks = || fstat(&ours).unwrap().st_blocks;
        assert_eq!(blocks(), (1 << 16) / 512);
        theirs.discard(&(0..1 << 40)).unwrap();
        assert_eq!(blocks(), 0);
        drop(lent);
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
        let ours = Shared::new(1, 0).unwrap();
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
