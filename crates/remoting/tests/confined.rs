//! What `vgpu-worker` keeps of what it was started with, and until when it is there.
#![cfg(not(any(loom, feature = "blind")))]
#![allow(unsafe_code)]

mod common;

use std::fs;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use common::{Program, connect, session};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Resource, Signal, getpid, getrlimit, pidfd_open, pidfd_send_signal, prlimit,
    test_kill_process,
};
use vgpu_remoting::filter;
use vgpu_remoting::session::Mode;

/// The program, as the hook starts it: with a socket that listens, by a shell which does `more` before, `$as` somebody. What comes after
/// that are descriptors for it, and further arguments; it has `watched` by its pidfd as its standard input.
fn started(more: &str, with: &str, watched: Option<&Sleeper>) -> Program {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    let program = Program::command(1 << 20);
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{more}\nexec $as \"$0\" \"$@\" --socket-fd 9 9<&1 {with}")]);
    command.arg(program.get_program()).args(program.get_args());
    let pidfd =
        watched.map(|Sleeper(child)| pidfd_open(Pid::from_child(child), PidfdFlags::empty()).unwrap());
    command.stdin(pidfd.map_or_else(Stdio::null, Stdio::from));
    command.stdout(Stdio::from(OwnedFd::from(listener)));
    Program::with(command.spawn().unwrap(), socket, directory)
}

/// Until it has confined itself: it serves then.
fn served(program: &Program) {
    /// A process has one client's addresses once.
    static CLIENT: Mutex<()> = Mutex::new(());
    let _alone = CLIENT.lock();
    let channel = connect(&program.socket);
    session(Mode::Reuse, &channel).allocate(1000).unwrap();
}

fn of(program: &Program, file: &str) -> String {
    let path = format!("/proc/{}/{file}", program.child.id());
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A line of its status, as words.
fn status(program: &Program, name: &str) -> Vec<String> {
    let status = of(program, "status");
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("{name}: {status}")).split_whitespace().map(Into::into).collect()
}

fn link(program: &Program, name: &str) -> PathBuf {
    fs::read_link(format!("/proc/{}/{name}", program.child.id())).unwrap()
}

#[test]
#[ignore = "needs root: it gives up to be that"]
fn it_is_nobody_and_has_nothing_of_whoever_started_it() {
    let other = sleeper();
    // Not every root may spare itself.
    let spared = "(echo -500 >/proc/$$/oom_score_adj) 2>/dev/null";
    let before = format!(
        "cd /usr; umask 022; as='prlimit --nproc=20: setpriv --groups 4,20'; ulimit -c unlimited; ulimit -S -n 256; {spared}"
    );
    let program = started(&before, "6</etc/passwd 8</etc/group", Some(&other));
    served(&program);
    assert_eq!(status(&program, "Uid"), ["65534"; 4]);
    assert_eq!(status(&program, "Gid"), ["65534"; 4]);
    assert_eq!(status(&program, "Groups"), [""; 0]);
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(status(&program, set), ["0000000000000000"], "{set}");
    }
    assert_eq!(status(&program, "NoNewPrivs"), ["1"]);
    assert_eq!(status(&program, "Seccomp"), ["2"]);
    assert_eq!(status(&program, "Umask"), ["0077"]);
    assert!(!of(&program, "oom_score_adj").starts_with('-'));
    let limits = of(&program, "limits");
    let limit = |name: &str| {
        let line = limits.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().next().unwrap().to_owned()
    };
    assert_eq!(limit("Max core file size"), "0");
    assert!(limit("Max open files").parse::<u64>().unwrap() >= 1024);
    assert_ne!(limit("Max processes"), "20", "other processes of its user count too");
    assert_eq!(link(&program, "cwd"), Path::new("/"));
    assert_eq!([0, 1].map(|fd| link(&program, &format!("fd/{fd}"))), ["/dev/null"; 2].map(PathBuf::from));
    let open = fs::read_dir(format!("/proc/{}/fd", program.child.id())).unwrap();
    // Who asked it whether it serves is gone by now, and so may be its socket when we come to that.
    let files = open.filter_map(|fd| match fs::read_link(fd.unwrap().path()) {
        Err(gone) if gone.kind() == std::io::ErrorKind::NotFound => None,
        file => Some(file.unwrap()),
    });
    assert!(!files.into_iter().any(|file| file.starts_with("/etc")));
    // Of its own session, which is the fourth after the name.
    let stat = of(&program, "stat");
    let session = stat.rsplit_once(") ").unwrap().1.split(' ').nth(3).unwrap();
    assert_eq!(session, program.child.id().to_string());
    // Nobody else's to look at: its files are root's, as those of a process are that cannot be traced.
    let owner = std::os::unix::fs::MetadataExt::uid(
        &fs::metadata(format!("/proc/{}/environ", program.child.id())).unwrap(),
    );
    assert_eq!(owner, 0);
    drop(other);
}

#[test]
fn what_reaches_beyond_it_is_refused() {
    let tried = || {
        let refused = Err(Errno::PERM);
        assert_eq!(test_kill_process(getpid()), refused);
        assert_eq!(
            pidfd_open(getpid(), PidfdFlags::empty()).map(|fd| pidfd_send_signal(fd, Signal::CONT)),
            Ok(refused)
        );
        assert_eq!(
            prlimit(Some(getpid()), Resource::Core, getrlimit(Resource::Core)),
            refused.map(|()| unreachable!())
        );
        let program = Command::new("true").spawn().map(|_| ());
        let socket = UnixDatagram::unbound().map(|_| ());
        for refused in [program, socket] {
            assert_eq!(refused.unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
        }
        let denied = || std::io::Error::last_os_error().raw_os_error() == Some(libc::EPERM);
        #[cfg(target_arch = "x86_64")]
        for number in [libc::SYS_kill, libc::SYS_clone3] {
            // SAFETY: no signal, to this process; or a process of no arguments, which is none.
            let again = unsafe { libc::syscall(number | 1 << 30, 0, 0) };
            assert!(again == -1 && denied(), "{number} of x32");
        }
        assert_eq!(UnixDatagram::pair().unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
        let ((stream, _), told_to) = (UnixStream::pair().unwrap(), 0_i32);
        // F_SETOWN and F_SETSIG.
        for owner in [8, 10] {
            // SAFETY: plain numbers.
            let told = unsafe { libc::fcntl(stream.as_raw_fd(), owner, 0) };
            assert!(told == -1 && denied(), "{owner}");
        }
        // SAFETY: a number that is there, of FIOSETOWN.
        let told = unsafe { libc::ioctl(stream.as_raw_fd(), 0x8901, &raw const told_to) };
        assert!(told == -1 && denied(), "FIOSETOWN");
        stream.set_nonblocking(true).unwrap();
        // SAFETY: no signal, to this thread.
        let own = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), libc::gettid(), 0) };
        assert_eq!(own, 0, "abort(3) ends as it does");
        std::thread::spawn(|| assert_eq!(test_kill_process(getpid()), Err(Errno::PERM))).join()
    };
    let thread = std::thread::spawn(move || {
        filter::refuse().unwrap();
        tried()
    });
    thread.join().unwrap().unwrap();
    test_kill_process(getpid()).unwrap();
}

#[test]
#[ignore = "needs root: it gives up to be that"]
fn it_is_who_it_is_told_to_be() {
    let program = started("", "--user 4711", None);
    served(&program);
    assert_eq!(status(&program, "Uid"), ["4711"; 4]);
    assert_eq!(status(&program, "Gid"), ["4711"; 4]);
}

/// As where other processes of its user have all that there may be, and it may not have more.
#[test]
#[ignore = "needs root: it is another user, who may have two threads"]
fn a_thread_that_there_is_not_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let mut program = started(
        "as='prlimit --nproc=2 setpriv --bounding-set -sys_resource'",
        &format!("--user 4712 2>{}", log.display()),
        None,
    );
    let mut refused = UnixStream::connect(&program.socket).unwrap();
    assert_eq!(refused.read(&mut [0]).unwrap(), 0, "it is not let in");
    program.signal("TERM");
    assert!(program.child.wait().unwrap().success());
    let said = fs::read_to_string(log).unwrap();
    assert!(said.contains("nobody can be let in: ") && said.lines().count() == 1, "{said}");
}

#[test]
fn a_descriptor_that_there_is_not_is_said() {
    let output = Program::command(1 << 20).args(["--socket-fd", "77"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "vgpu-worker: Inherited(77): Bad file descriptor (os error 9)\n"
    );
}

/// A cgroup of ours, removed when dropped with that below it.
struct Cgroup(PathBuf);

impl Cgroup {
    fn new(folder: PathBuf) -> Self {
        fs::create_dir(&folder).unwrap();
        Self(folder)
    }

    fn hold(&self, Sleeper(process): &Sleeper) {
        fs::write(self.0.join("cgroup.procs"), process.id().to_string()).unwrap();
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// A folder of each version that there is here.
fn versions(name: &str) -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let of = |version: &str, option: &str| {
        let mut mounts = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let mount = mounts.find(|mount| mount[2] == version && mount[3].split(',').any(|is| is == option));
        mount.map(|mount| Path::new(mount[1]).join(format!("vgpu-{name}-{}", std::process::id())))
    };
    let all: Vec<_> = [of("cgroup2", "rw"), of("cgroup", "devices")].into_iter().flatten().collect();
    assert!(!all.is_empty(), "no cgroups here");
    all
}

/// A process that does nothing, killed when dropped.
struct Sleeper(Child);

fn sleeper() -> Sleeper {
    Sleeper(Command::new("sleep").arg("1000").spawn().unwrap())
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn ends(program: &mut Program) {
    let end = Instant::now() + Duration::from_secs(10);
    while program.child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < end, "it does not end");
        std::thread::yield_now();
    }
    assert!(program.child.wait().unwrap().success());
}

fn watching(cgroup: &Cgroup) -> Program {
    started("", &format!("--watch-cgroup-fd 7 7<'{}'", cgroup.0.display()), None)
}

#[test]
#[ignore = "needs root: it makes cgroups"]
fn it_is_there_as_long_as_a_process_is_in_the_cgroup_or_below() {
    for folder in versions("below") {
        let cgroup = Cgroup::new(folder);
        let below = Cgroup::new(cgroup.0.join("below"));
        let [one, other] = [sleeper(), sleeper()];
        cgroup.hold(&one);
        let mut program = watching(&cgroup);
        served(&program);
        below.hold(&other);
        drop(one);
        served(&program);
        drop(other);
        ends(&mut program);
        drop(below);
    }
}

#[test]
#[ignore = "needs root: it makes cgroups"]
fn it_ends_at_once_where_the_cgroup_is_empty_or_is_gone() {
    for folder in versions("empty") {
        let cgroup = Cgroup::new(folder);
        ends(&mut watching(&cgroup));
        let remove = format!("exec 7<'{0}'; rmdir '{0}'", cgroup.0.display());
        ends(&mut started(&remove, "--watch-cgroup-fd 7", None));
    }
}

/// The worker does not look until both are gone.
#[test]
#[ignore = "needs root: it makes cgroups"]
fn it_ends_where_the_cgroup_went_with_its_last_process() {
    for folder in versions("removed") {
        let cgroup = Cgroup::new(folder);
        let last = sleeper();
        cgroup.hold(&last);
        let mut program = watching(&cgroup);
        served(&program);
        program.signal("STOP");
        drop(last);
        fs::remove_dir(&cgroup.0).unwrap();
        program.signal("CONT");
        ends(&mut program);
    }
}

#[test]
#[ignore = "needs root: it makes cgroups"]
fn a_container_outlives_its_init_and_so_does_the_worker() {
    for folder in versions("init") {
        let cgroup = Cgroup::new(folder);
        let [init, other] = [sleeper(), sleeper()];
        [&init, &other].into_iter().for_each(|process| cgroup.hold(process));
        let with = format!("--watch-cgroup-fd 7 7<'{}' --watch-fd 8 8<&0", cgroup.0.display());
        let mut program = started("", &with, Some(&init));
        served(&program);
        drop(init);
        served(&program);
        drop(other);
        ends(&mut program);
    }
}
