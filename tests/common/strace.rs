//! Hooks under strace: which system calls they make, and what becomes of them when one of these fails, or
//! is their last.
//!
//! strace counts the calls of a name in each process for itself, but one rule holds for all processes. So for a
//! call of the child that a hook forks, where the hook itself makes such calls too, the child is stopped as it
//! enters the container, and a second strace that knows only the child goes on.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Pid, Signal, kill_process};

use super::command::{Running, program};
use super::host::Host;
use super::wait::{Process, for_file};

/// Who makes a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    /// The hook.
    Hook,
    /// The process that asks NVML for it: another program, in a sense.
    Probe,
    /// The child that it sends into the container.
    Child,
}

/// A system call of a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Who makes it.
    pub who: Who,
    /// Its name.
    pub name: String,
    /// Which of this name of this process, from 1.
    pub nth: usize,
    /// Does it come after the hook has begun to read its input? What is before is the C library's and Rust's.
    pub in_main: bool,
}

/// What is to become of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is not made, and this error is its result.
    Fails(&'static str),
    /// The same, and so for all later ones of this name.
    FailsFromThere(&'static str),
    /// The process gets SIGKILL instead.
    Killed,
}

impl Fault {
    fn rule(self, name: &str, nth: usize) -> String {
        match self {
            Self::Fails(errno) => format!("inject={name}:error={errno}:when={nth}"),
            Self::FailsFromThere(errno) => format!("inject={name}:error={errno}:when={nth}+"),
            Self::Killed => format!("inject={name}:signal=KILL:when={nth}"),
        }
    }
}

/// How a hook ended that was hit.
#[derive(Debug)]
pub struct Hit {
    /// Its exit code; none when a signal ended it.
    pub code: Option<i32>,
    /// What it said.
    pub stderr: String,
    /// Was the call reached at all?
    pub reached: bool,
}

/// The calls of an undisturbed run of a hook, which must end with this exit code.
pub fn calls(host: &Host, stage: &str, state: &str, code: i32) -> Vec<Call> {
    let log = new_log(host);
    start(host, &["-f"], &log, stage, state).wait().exits(code);
    read(&log)
}

/// The same of the hook alone: a worker that it starts goes on, and strace, if it knew it, would wait for its end.
pub fn own_calls(host: &Host, stage: &str, state: &str) -> Vec<Call> {
    let log = new_log(host);
    start(host, &[], &log, stage, state).wait().ok();
    // The log of one process does not name it.
    let text = fs::read_to_string(&log).expect("strace's log");
    fs::write(&log, text.lines().map(|line| format!("1 {line}\n")).collect::<String>())
        .expect("strace's log");
    read(&log)
}

/// Runs a hook, of which a call of its own meets `fault`, and follows nobody else.
pub fn hit_own(host: &Host, stage: &str, state: &str, call: &Call, fault: Fault) -> Hit {
    let log = new_log(host);
    let rule = options(call, call.nth, fault);
    let output = start(host, &rule.each_ref().map(String::as_str), &log, stage, state).wait();
    Hit { code: output.code, stderr: output.stderr, reached: was_hit(&log) }
}

/// The calls in a log of `strace -f` of a hook, in the order in which they are entered. Without execve, which
/// comes before the program, and so is not its own.
pub fn read(log: &Path) -> Vec<Call> {
    let text = fs::read_to_string(log).expect("strace's log");
    let lines: Vec<_> = text.lines().filter_map(entered).collect();
    let hook = lines.first().expect("a call").0;
    let who = |pid: &str| match pid {
        _ if pid == hook => Who::Hook,
        _ if lines.iter().any(|(other, name, _)| *other == pid && *name == "execve") => Who::Probe,
        _ => Who::Child,
    };
    let mut calls: Vec<Call> = Vec::new();
    for (pid, name, arguments) in &lines {
        let who = who(pid);
        let nth = 1 + count(&calls, who, name);
        let begins = who == Who::Hook && *name == "read" && arguments.starts_with("0,");
        let in_main = begins || calls.last().is_some_and(|call| call.in_main);
        calls.push(Call { who, name: (*name).to_owned(), nth, in_main });
    }
    assert!(calls.iter().any(|call| call.in_main), "no call of a hook's in:\n{text}");
    calls.retain(|call| call.name != "execve");
    calls
}

/// Process id, name and arguments, where a line of the log says that a call is entered.
fn entered(line: &str) -> Option<(&str, &str, &str)> {
    let (pid, line) = line.split_once(' ')?;
    let (name, arguments) = line.trim_start().split_once('(')?;
    name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_').then_some((pid, name, arguments))
}

fn count(calls: &[Call], who: Who, name: &str) -> usize {
    calls.iter().filter(|call| call.who == who && call.name == name).count()
}

impl Call {
    /// Does a rule for all of a hook's processes reach this call, and no other of that name?
    pub fn is_alone(&self, calls: &[Call]) -> bool {
        self.who == Who::Hook || calls.iter().all(|call| call.who == self.who || call.name != self.name)
    }

    /// Can [`hit`] reach it? Not what the child does before it enters the container, where others make such calls, too.
    pub fn can_be_hit(&self, calls: &[Call]) -> bool {
        let before = || count(&calls[..entered_container(calls)], Who::Child, &self.name);
        self.is_alone(calls) || before() < self.nth
    }
}

/// The options of strace with which a call meets a fault.
fn options(call: &Call, nth: usize, fault: Fault) -> [String; 4] {
    ["-e".to_owned(), format!("trace={}", call.name), "-e".to_owned(), fault.rule(&call.name, nth)]
}

/// The command line that a hook's own is put behind to be traced, and hit.
pub fn prefix(log: &Path, hit: Option<(&Call, Fault)>) -> Vec<String> {
    let strace = program("strace");
    let strace = [strace.to_str().expect("UTF-8"), "-q", "-f", "-o", log.to_str().expect("UTF-8")];
    let rule = hit.map(|(call, fault)| options(call, call.nth, fault));
    strace.map(str::to_owned).into_iter().chain(rule.into_iter().flatten()).collect()
}

/// Runs a hook, one of whose `calls` meets `fault`.
pub fn hit(host: &Host, stage: &str, state: &str, calls: &[Call], call: &Call, fault: Fault) -> Hit {
    if !call.is_alone(calls) {
        return hit_child(host, stage, state, calls, call, fault);
    }
    // A hook that fails waits for its child; one that is killed does not, but strace does if it knows the child.
    // The probe ends with the hook, and must not be hit itself.
    let probed = calls.iter().any(|call| call.who == Who::Probe);
    let follow = call.who == Who::Child || (fault == Fault::Killed && !probed);
    let rule = options(call, call.nth, fault);
    let rule = rule.iter().map(String::as_str).chain(follow.then_some("-f"));
    let log = new_log(host);
    let output = start(host, &rule.collect::<Vec<_>>(), &log, stage, state).wait();
    Hit { code: output.code, stderr: output.stderr, reached: was_hit(&log) }
}

/// The same for a call of the child that comes after it has entered the container.
fn hit_child(host: &Host, stage: &str, state: &str, calls: &[Call], call: &Call, fault: Fault) -> Hit {
    let (hook, child) = stopped_at(host, stage, state, "setns", 1);
    let before = count(&calls[..entered_container(calls)], Who::Child, &call.name);
    assert!(before < call.nth, "{call:?} comes before the child has entered the container");
    let log = new_log(host);
    let (log_str, pid) = (log.to_str().expect("UTF-8"), child.to_string());
    let rule = options(call, call.nth - before, fault);
    let rule: Vec<&str> = rule.iter().map(String::as_str).collect();
    let strace = [&["strace", "-o", log_str, "-p", &pid], &rule[..]].concat();
    let strace = host.view().start(&strace, b"");
    for_file(strace.stderr_file(), "strace to attach", |said| said.contains(" attached"));
    send(child, Signal::CONT);
    let output = hook.wait();
    strace.wait();
    Hit { code: output.code, stderr: output.stderr, reached: was_hit(&log) }
}

/// How many of the calls are made until the child has entered the container.
fn entered_container(calls: &[Call]) -> usize {
    let setns = calls.iter().position(|call| call.who == Who::Child && call.name == "setns");
    setns.expect("setns") + 1
}

/// Starts a hook and lets the process that first makes the call `name` for the `nth` time stop after it, traced by
/// nobody any more; then returns the hook and that process.
pub fn stopped_at(host: &Host, stage: &str, state: &str, name: &str, nth: usize) -> (Running, u32) {
    let log = new_log(host);
    let rule = format!("inject={name}:signal=STOP:when={nth}");
    // -D: the hook is our own child, and not strace's, so that it is there when strace is not.
    let hook = start(host, &["-f", "-D", "-e", &format!("trace={name}"), "-e", &rule], &log, stage, state);
    for_file(&log, "the hook to stop", |text| text.contains("--- stopped by SIGSTOP ---"));
    let text = fs::read_to_string(&log).expect("strace's log");
    let line = text.lines().find(|line| line.contains("--- stopped by SIGSTOP ---")).expect("that line");
    let pid = line.split(' ').next().and_then(|pid| pid.parse().ok()).expect("a process id");
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("a stopped process");
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:")).expect("its tracer");
    let tracer = tracer.trim().parse().expect("a process id");
    let gone = Process::of(tracer);
    send(tracer, Signal::KILL);
    gone.ended();
    (hook, pid)
}

/// Sends a signal to a process that must be there.
pub fn send(pid: u32, signal: Signal) {
    let pid = pid.try_into().ok().and_then(Pid::from_raw).expect("a process id");
    kill_process(pid, signal).expect("kill");
}

fn start(host: &Host, options: &[&str], log: &Path, stage: &str, state: &str) -> Running {
    let hook = host.hook(stage);
    let hook: Vec<&str> = hook.iter().map(String::as_str).collect();
    let log = log.to_str().expect("UTF-8");
    host.view().start(&[&["strace", "-q", "-o", log], options, &hook].concat(), state.as_bytes())
}

/// A file for a log, that is not there yet.
pub fn new_log(host: &Host) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    host.dir().join(format!("output/{}.strace", NEXT.fetch_add(1, Ordering::Relaxed)))
}

/// Did a call in the log meet its fault?
pub fn was_hit(log: &Path) -> bool {
    let text = fs::read_to_string(log).expect("strace's log");
    text.contains("(INJECTED)") || text.contains("+++ killed by SIGKILL +++")
}
