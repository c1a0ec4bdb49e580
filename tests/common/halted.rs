//! A container whose runtime waits for a hook that never ends. vgpu's is called by hand, as often as a test
//! wants, and what the runtime itself does to the root file system is done already.

use std::fs;
use std::path::Path;
use std::time::Instant;

use serde_json::Value;

use super::attack::{LOOK, Outcome, Outside, judge};
use super::command::{Output, Running};
use super::container::{Builder, Container};
use super::runtime::Step;
use super::strace;
use super::wait::{DEADLINE, Process, for_file};
use rustix::process::{Pid, Signal, kill_process};

/// The container. Dropping it ends its first process.
pub struct Halted<'h> {
    container: Container<'h>,
    state: String,
    pid: u32,
    init: Process,
    _runtime: Running,
}

impl<'h> Halted<'h> {
    /// Creates it, up to its hooks. It must be recorded.
    pub fn new(builder: Builder<'h>) -> Self {
        let container = builder.no_hooks().hook("createRuntime", &["/bin/sleep", "1000000"]).build();
        let runtime = container.spawn_step(Step::Create);
        let parse = |text: &str| serde_json::from_str::<Value>(text).ok();
        let file = container.dir().join("createRuntime.state");
        for_file(&file, "the state", |text| parse(text).is_some());
        let state = container.hook_state("createRuntime");
        let pid = parse(&state).expect("parsed before")["pid"].as_u64().expect("a pid");
        let pid = pid.try_into().expect("a pid");
        Self { container, state, pid, init: Process::of(pid), _runtime: runtime }
    }

    /// The host pid of its first process.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The OCI state that hooks are given.
    pub fn state(&self) -> &str {
        &self.state
    }

    /// Calls the hook.
    pub fn hook(&self) -> Output {
        self.container.host().run_hook("createRuntime", &self.state)
    }

    /// How often the child that enters the container makes each of these system calls.
    pub fn count(&self, names: &[&str]) -> Vec<usize> {
        let calls = strace::calls(self.container.host(), "createRuntime", &self.state, 0);
        let by_child = |name: &&str| {
            let its = |call: &&strace::Call| call.who == strace::Who::Child && call.name == *name;
            calls.iter().filter(its).count()
        };
        names.iter().map(by_child).collect()
    }

    /// Calls the hook. When its child that enters the container has made a system call for the `n`th time,
    /// it stops, and `meanwhile` is done.
    pub fn hook_stopped_after(&self, call: &str, n: usize, meanwhile: impl FnOnce()) -> Output {
        const STOP: &str = "--- stopped by SIGSTOP";
        let trace = self.container.dir().join("stop.trace");
        let _ = fs::remove_file(&trace);
        let inject = format!("inject={call}:signal=SIGSTOP:when={n}");
        let hook = self.traced(&["-e", &format!("trace=setns,{call}"), "-e", &inject], &trace);
        // The parent stops, too, if it makes the call as often: before the child, or when it takes back what the
        // child could not finish.
        let mut meanwhile = Some(meanwhile);
        let (mut resumed, end) = (0, Instant::now() + DEADLINE);
        while hook.is_running() {
            assert!(Instant::now() < end, "the hook did not end in {DEADLINE:?}");
            let text = fs::read_to_string(&trace).unwrap_or_default();
            for (pid, _) in its_lines(&text, STOP).skip(resumed) {
                if its_lines(&text, "setns(").any(|(child, _)| child == pid)
                    && let Some(meanwhile) = meanwhile.take()
                {
                    meanwhile();
                }
                kill_process(Pid::from_raw(pid).expect("a pid"), Signal::CONT).expect("kill");
                resumed += 1;
            }
            std::thread::yield_now();
        }
        assert!(meanwhile.is_none(), "the child did not stop");
        hook.wait()
    }

    /// Starts the hook under strace with these options.
    fn traced(&self, options: &[&str], trace: &Path) -> Running {
        let host = self.container.host();
        let strace = ["strace", "-f", "-o", trace.to_str().expect("UTF-8")];
        let hook = host.hook("createRuntime");
        let hook: Vec<_> = hook.iter().map(String::as_str).collect();
        host.view().start(&[&strace, options, &hook].concat(), self.state.as_bytes())
    }

    /// Calls the hook while `meanwhile` is there, after which the host must be as it was; then judges what
    /// the container's first process would see.
    #[track_caller]
    pub fn attack<T>(&self, outside: &Outside, what: &str, meanwhile: T) -> Outcome {
        let before = outside.world();
        let output = self.hook();
        drop(meanwhile);
        outside.assert_is(&before, what);
        self.judge(&output)
    }

    /// What a call of the hook comes to.
    #[track_caller]
    pub fn judge(&self, output: &Output) -> Outcome {
        judge(self.container.host(), output.code.expect("an exit code"), &output.stderr, || self.look())
    }

    fn look(&self) -> String {
        self.enter(&["chroot", self.root().to_str().expect("UTF-8"), "/bin/sh", "-c", LOOK]).stdout
    }

    /// Unmounts all that the hook has mounted.
    pub fn undo(&self) {
        let mounts = mounted_by_vgpu(self.pid);
        let mut paths: Vec<_> = mounts.iter().map(|line| line.split(' ').nth(4).expect("a path")).collect();
        // What is mounted on another mount first.
        paths.sort_by(|a, b| b.cmp(a));
        if !paths.is_empty() {
            self.enter(&[&["umount"], &paths[..]].concat()).ok();
        }
    }

    /// Runs a program of the host's in its mount namespace.
    pub fn enter(&self, argv: &[&str]) -> Output {
        let namespace = format!("--mount=/proc/{}/ns/mnt", self.pid);
        self.container.host().view().run(&[&["nsenter", &namespace, "--"], argv].concat())
    }

    /// Its root file system.
    pub fn root(&self) -> &Path {
        self.container.root()
    }

    /// Its bundle.
    pub fn bundle(&self) -> &Path {
        self.container.dir()
    }
}

impl Drop for Halted<'_> {
    fn drop(&mut self) {
        self.init.kill();
        self.init.ended();
    }
}

/// The lines of strace's that begin with `what`, each with its pid.
fn its_lines<'t>(trace: &'t str, what: &str) -> impl Iterator<Item = (i32, &'t str)> {
    let line = move |line: &'t str| {
        let (pid, rest) = line.split_once(' ')?;
        Some((pid.parse().expect("a pid"), rest.trim_start()))
    };
    trace.lines().filter_map(line).filter(move |(_, rest)| rest.starts_with(what))
}

/// What vgpu has mounted in the mount namespace of a process, as lines of its mount table.
pub fn mounted_by_vgpu(pid: u32) -> Vec<String> {
    let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo")).expect("mountinfo");
    let its = |line: &&str| {
        let path = Path::new(line.split(' ').nth(4).expect("a path"));
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let of_driver = |part: &str| part.starts_with("nvidia") || part == "dri";
        name == "vgpu" || path.components().any(|part| of_driver(&part.as_os_str().to_string_lossy()))
    };
    mounts.lines().filter(its).map(str::to_owned).collect()
}
