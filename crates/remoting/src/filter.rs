//! System calls that a worker has no use for and that reach beyond it (seccomp(2)): they are refused as those are that one
//! lacks the rights for. A client that should come to rule its worker so has no other program, no network, and nothing of
//! other workers, which are the same user's.

use std::collections::BTreeMap;
use std::io;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

/// What is refused, whatever its arguments.
const REFUSED: [i64; 40] = [
    // Other processes.
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_pidfd_send_signal,
    libc::SYS_pidfd_getfd,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_kcmp,
    libc::SYS_setpriority,
    libc::SYS_ioprio_set,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setaffinity,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    // Programs.
    libc::SYS_execve,
    libc::SYS_execveat,
    // Sockets, and what else there is that outlives a process.
    libc::SYS_socket,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_shmget,
    libc::SYS_semget,
    libc::SYS_msgget,
    libc::SYS_mq_open,
    // What the kernel has more of than others, and needs no rights for.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_userfaultfd,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_personality,
];

/// Those that make a process in one way alone.
#[cfg(target_arch = "x86_64")]
const FORKS: [i64; 2] = [libc::SYS_fork, libc::SYS_vfork];
#[cfg(not(target_arch = "x86_64"))]
const FORKS: [i64; 0] = [];

/// Calls of programs with addresses of 32 bits, by which x86-64 has all others a second time: in this bit, and with
/// numbers of their own for some.
const X32: i64 = 1 << 30;
const X32_ALONE: std::ops::RangeInclusive<i64> = 512..=547;

/// `F_SETOWN`, `F_SETSIG` and `F_SETOWN_EX`; `FIOSETOWN` and `SIOCSPGRP`.
const OWNERS: [u64; 3] = [8, 10, 15];
const OWNERS_BY_IOCTL: [u64; 2] = [0x8901, 0x8902];

/// Refuses them in this thread, and in those that it begins from now on; no program has more rights than it.
///
/// # Errors
/// Of the system.
pub fn refuse() -> io::Result<()> {
    // Its flags are in memory, where they cannot be looked at: the C library does with `clone` instead.
    apply(libc::ENOSYS, [(libc::SYS_clone3, vec![])].into())?;
    let mut refused: BTreeMap<i64, Vec<SeccompRule>> =
        REFUSED.into_iter().chain(FORKS).map(|number| (number, vec![])).collect();
    // A process that is no thread; and of other processes, signals and limits.
    let threads = libc::CLONE_THREAD as u64;
    refused.insert(libc::SYS_clone, vec![rule(0, SeccompCmpOp::MaskedEq(threads), 0)?]);
    refused.insert(libc::SYS_tgkill, vec![rule(0, SeccompCmpOp::Ne, std::process::id().into())?]);
    refused.insert(libc::SYS_prlimit64, vec![rule(0, SeccompCmpOp::Ne, 0)?]);
    // Who is signalled when something can be read.
    for (number, requests) in [(libc::SYS_fcntl, &OWNERS[..]), (libc::SYS_ioctl, &OWNERS_BY_IOCTL)] {
        let rules = requests.iter().map(|request| rule(1, SeccompCmpOp::Eq, *request));
        refused.insert(number, rules.collect::<io::Result<_>>()?);
    }
    // A pair of streams is its own, but one of datagrams sends to any that has a name: their types have this bit.
    let datagrams = libc::SOCK_DGRAM as u64;
    let others = rule(0, SeccompCmpOp::Ne, libc::AF_UNIX as u64)?;
    let unconnected = rule(1, SeccompCmpOp::MaskedEq(datagrams), datagrams)?;
    refused.insert(libc::SYS_socketpair, vec![others, unconnected]);
    if cfg!(target_arch = "x86_64") {
        let all = refused.keys().copied().chain([libc::SYS_clone3]).chain(X32_ALONE);
        let again: Vec<i64> = all.map(|number| number | X32).collect();
        refused.extend(again.into_iter().map(|number| (number, vec![])));
    }
    apply(libc::EPERM, refused)
}

/// One that holds where an argument, of which the lower half is looked at, compares so with a value.
fn rule(argument: u8, compare: SeccompCmpOp, value: u64) -> io::Result<SeccompRule> {
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, compare, value);
    condition.and_then(|condition| SeccompRule::new(vec![condition])).map_err(io::Error::other)
}

fn apply(error: i32, rules: BTreeMap<i64, Vec<SeccompRule>>) -> io::Result<()> {
    let (refuse, machine) = (SeccompAction::Errno(error as u32), std::env::consts::ARCH);
    let machine = machine.try_into().map_err(io::Error::other)?;
    let filter =
        SeccompFilter::new(rules, SeccompAction::Allow, refuse, machine).map_err(io::Error::other)?;
    let program: BpfProgram = filter.try_into().map_err(io::Error::other)?;
    seccompiler::apply_filter(&program).map_err(io::Error::other)
}
