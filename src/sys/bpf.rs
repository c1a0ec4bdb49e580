//! bpf(2): the few commands that reading, loading and swapping a cgroup's device programs takes.
//!
//! The structures are the leading members of the kernel's `union bpf_attr` and `struct bpf_prog_info`
//! (linux/bpf.h); the kernel takes what is left out as zero.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_long};
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

const PROG_LOAD: c_int = 5;
const PROG_ATTACH: c_int = 8;
const PROG_GET_FD_BY_ID: c_int = 13;
const OBJ_GET_INFO_BY_FD: c_int = 15;
const PROG_QUERY: c_int = 16;

const PROG_TYPE_CGROUP_DEVICE: u32 = 15;
const ATTACH_TYPE_CGROUP_DEVICE: u32 = 6;

/// Several programs may be attached; all must allow.
pub const ALLOW_MULTI: u32 = 1 << 1;
const REPLACE: u32 = 1 << 2;

/// `BPF_CGROUP_MAX_PROGS`: the kernel attaches no more to one cgroup.
const MAX_ATTACHED: usize = 64;

/// The longest name of a program; the kernel wants room for a NUL.
pub const MAX_NAME: usize = 15;

/// One instruction (`struct bpf_insn`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Insn {
    /// Class, operation and source.
    pub code: u8,
    registers: u8,
    /// Offset of a jump, in instructions after this one, or of a memory access, in bytes.
    pub off: i16,
    /// The constant.
    pub imm: i32,
}

impl Insn {
    /// An instruction. Registers are 0 to 15.
    pub const fn new(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> Self {
        Self { code, registers: 0, off, imm }.with_registers(dst, src)
    }

    /// The same with other registers. They are bit fields in C, so byte order decides their order.
    #[must_use]
    pub const fn with_registers(mut self, dst: u8, src: u8) -> Self {
        let (low, high) = if cfg!(target_endian = "little") { (dst, src) } else { (src, dst) };
        self.registers = low & 0xf | high << 4;
        self
    }

    /// The register that is written, or compared.
    pub const fn dst(self) -> u8 {
        if cfg!(target_endian = "little") { self.registers & 0xf } else { self.registers >> 4 }
    }

    /// The other register.
    pub const fn src(self) -> u8 {
        if cfg!(target_endian = "little") { self.registers >> 4 } else { self.registers & 0xf }
    }
}

/// The device programs attached to a cgroup itself, its ancestors' not included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    /// Their ids.
    pub ids: Vec<u32>,
    /// How they were attached; [`ALLOW_MULTI`] or not.
    pub flags: u32,
}

/// A loaded program, as far as the kernel shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Its id.
    pub id: u32,
    /// Its name, empty if it has none.
    pub name: String,
    /// How many maps it uses.
    pub maps: u32,
    /// Its instructions after verification. `None`: the kernel blinded them and does not show them
    /// (net.core.bpf_jit_harden with kernel.kptr_restrict).
    pub insns: Option<Vec<Insn>>,
}

/// The device programs of the cgroup `cgroup`, a directory of cgroup v2.
pub fn attached(cgroup: BorrowedFd<'_>) -> io::Result<Attached> {
    #[repr(C)]
    struct Query {
        target_fd: RawFd,
        attach_type: u32,
        query_flags: u32,
        attach_flags: u32,
        prog_ids: u64,
        prog_cnt: u32,
        pad: u32,
    }
    let mut ids = vec![0u32; MAX_ATTACHED];
    let query = Query {
        target_fd: cgroup.as_raw_fd(),
        attach_type: ATTACH_TYPE_CGROUP_DEVICE,
        query_flags: 0,
        attach_flags: 0,
        prog_ids: address(ids.as_mut_ptr()),
        prog_cnt: MAX_ATTACHED as u32,
        pad: 0,
    };
    // SAFETY: `prog_ids` points to `prog_cnt` numbers that live, borrowed by nobody, until after the call.
    let (_, query) = unsafe { bpf(PROG_QUERY, query) }?;
    ids.truncate(query.prog_cnt as usize);
    Ok(Attached { ids, flags: query.attach_flags })
}

/// A descriptor of the program with this id; ENOENT when it is gone.
pub fn open(id: u32) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct GetFd {
        id: u32,
        next_id: u32,
        open_flags: u32,
    }
    // SAFETY: the command takes no pointer.
    let (fd, _) = unsafe { bpf(PROG_GET_FD_BY_ID, GetFd { id, next_id: 0, open_flags: 0 }) }?;
    // SAFETY: the kernel has just made this descriptor for us (close-on-exec), nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Reads a loaded program.
pub fn read(program: BorrowedFd<'_>) -> io::Result<Program> {
    let mut info = Info::default();
    // SAFETY: it holds no pointer.
    unsafe { get_info(program, &mut info) }?;
    let mut insns = vec![Insn::default(); (info.xlated_prog_len as usize).div_ceil(size_of::<Insn>())];
    let mut dump = Info {
        xlated_prog_len: info.xlated_prog_len,
        xlated_prog_insns: address(insns.as_mut_ptr()),
        ..Info::default()
    };
    // SAFETY: `insns` is as long as `xlated_prog_len` says, borrowed by nobody, and any bytes make an `Insn`.
    unsafe { get_info(program, &mut dump) }?;
    let name: Vec<u8> = info.name.into_iter().take_while(|b| *b != 0).collect();
    Ok(Program {
        id: info.id,
        name: String::from_utf8_lossy(&name).into_owned(),
        maps: info.nr_map_ids,
        insns: (dump.xlated_prog_insns != 0).then_some(insns),
    })
}

/// Loads a device program. The verifier's refusal is EINVAL or EACCES.
pub fn load(name: &str, insns: &[Insn]) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Load {
        prog_type: u32,
        insn_cnt: u32,
        insns: u64,
        license: u64,
        log_level: u32,
        log_size: u32,
        log_buf: u64,
        kern_version: u32,
        prog_flags: u32,
        prog_name: [u8; MAX_NAME + 1],
    }
    let mut prog_name = [0; MAX_NAME + 1];
    let len = name.len().min(MAX_NAME);
    prog_name[..len].copy_from_slice(&name.as_bytes()[..len]);
    let load = Load {
        prog_type: PROG_TYPE_CGROUP_DEVICE,
        insn_cnt: u32::try_from(insns.len()).map_err(io::Error::other)?,
        insns: address(insns.as_ptr()),
        // No helper is called, so the licence decides nothing.
        license: address(c"Apache-2.0".as_ptr()),
        log_level: 0,
        log_size: 0,
        log_buf: 0,
        kern_version: 0,
        prog_flags: 0,
        prog_name,
    };
    // SAFETY: `insns` points to `insn_cnt` instructions and `license` to a C string; the kernel only
    // reads both, and both live until after the call.
    let (fd, _) = unsafe { bpf(PROG_LOAD, load) }?;
    // SAFETY: the kernel has just made this descriptor for us (close-on-exec), nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Attaches `program` to `cgroup` with the flags its other programs have. Without [`ALLOW_MULTI`] it takes
/// the place of the one that is there.
pub fn attach(cgroup: BorrowedFd<'_>, program: BorrowedFd<'_>, flags: u32) -> io::Result<()> {
    prog_attach(cgroup, program, flags, 0)
}

/// Puts `program` in the place of `old`, in one step, where programs are attached with [`ALLOW_MULTI`].
/// ENOENT: `old` is not attached (any more), or through a bpf link.
pub fn replace(cgroup: BorrowedFd<'_>, program: BorrowedFd<'_>, old: BorrowedFd<'_>) -> io::Result<()> {
    prog_attach(cgroup, program, ALLOW_MULTI | REPLACE, old.as_raw_fd())
}

fn prog_attach(
    cgroup: BorrowedFd<'_>,
    program: BorrowedFd<'_>,
    attach_flags: u32,
    replace_bpf_fd: RawFd,
) -> io::Result<()> {
    #[repr(C)]
    struct Attach {
        target_fd: RawFd,
        attach_bpf_fd: RawFd,
        attach_type: u32,
        attach_flags: u32,
        replace_bpf_fd: RawFd,
    }
    let attach = Attach {
        target_fd: cgroup.as_raw_fd(),
        attach_bpf_fd: program.as_raw_fd(),
        attach_type: ATTACH_TYPE_CGROUP_DEVICE,
        attach_flags,
        replace_bpf_fd,
    };
    // SAFETY: the command takes no pointer.
    unsafe { bpf(PROG_ATTACH, attach) }.map(drop)
}

#[repr(C)]
#[derive(Default)]
struct Info {
    kind: u32,
    id: u32,
    tag: [u8; 8],
    jited_prog_len: u32,
    xlated_prog_len: u32,
    jited_prog_insns: u64,
    xlated_prog_insns: u64,
    load_time: u64,
    created_by_uid: u32,
    nr_map_ids: u32,
    map_ids: u64,
    name: [u8; MAX_NAME + 1],
}

/// # Safety
/// `xlated_prog_insns` must be 0 or point to `xlated_prog_len` bytes that are the caller's alone; the other
/// pointers in `info` must be 0.
unsafe fn get_info(program: BorrowedFd<'_>, info: &mut Info) -> io::Result<()> {
    #[repr(C)]
    struct GetInfo {
        bpf_fd: RawFd,
        info_len: u32,
        info: u64,
    }
    let get = GetInfo {
        bpf_fd: program.as_raw_fd(),
        info_len: size_of::<Info>() as u32,
        info: address(std::ptr::from_mut(info)),
    };
    // SAFETY: `info` points to `info_len` bytes that are ours alone; the caller answers for what they point to.
    unsafe { bpf(OBJ_GET_INFO_BY_FD, get) }.map(drop)
}

fn address<T: ?Sized>(pointer: *const T) -> u64 {
    pointer.cast::<u8>().expose_provenance() as u64
}

/// Room behind a command's structure: kernels from 6.17 until their fix answer PROG_QUERY with a `revision`
/// 56 bytes in, however short the caller said its structure is (kernel commit 21c4b99b27f3).
const UNION: usize = 256;

/// The system call, and `attr` as the kernel left it.
///
/// # Safety
/// Every pointer in `attr` must be what `command` wants it to be.
unsafe fn bpf<A>(command: c_int, attr: A) -> io::Result<(RawFd, A)> {
    #[repr(C, align(8))]
    struct Padded<A>(A, [u8; UNION]);
    let mut padded = Padded(attr, [0; UNION]);
    // SAFETY: the structure is as long as said, and longer than whatever the kernel knows; the caller
    // answers for what it points to.
    let result: c_long = unsafe {
        libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(&mut padded), size_of::<A>() as u32)
    };
    match RawFd::try_from(result) {
        Ok(result) if result >= 0 => Ok((result, padded.0)),
        _ => Err(io::Error::last_os_error()),
    }
}
