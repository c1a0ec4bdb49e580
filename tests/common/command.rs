//! A program under test: started, waited for with a deadline, its output kept in files.
//!
//! Output goes to files, not pipes: a container that lives on keeps them open, and a pipe would never end.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::wait::{DEADLINE, Process, readable_within};
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, waitid};

/// A program that was started.
pub struct Running {
    line: String,
    child: Option<Child>,
    files: Files,
}

/// Where a program's output goes.
#[derive(Clone, Debug)]
struct Files {
    stdout: PathBuf,
    stderr: PathBuf,
}

/// A program that has ended.
#[derive(Debug)]
pub struct Output {
    /// The command line, for messages.
    pub line: String,
    /// The exit code; none when a signal ended it.
    pub code: Option<i32>,
    /// What it wrote until it ended.
    pub stdout: String,
    /// What it wrote until it ended.
    pub stderr: String,
    files: Files,
}

impl Running {
    /// Starts `command` with `stdin`; its output goes to new files `<output>.out` and `<output>.err`.
    pub fn start(mut command: Command, line: String, stdin: &[u8], output: &Path) -> Self {
        let files = Files { stdout: output.with_extension("out"), stderr: output.with_extension("err") };
        let create = |path: &Path| {
            File::create_new(path).unwrap_or_else(|e| panic!("cannot create {}: {e}", path.display()))
        };
        command.stdin(input(stdin, output)).stdout(create(&files.stdout)).stderr(create(&files.stderr));
        let child = command.spawn().unwrap_or_else(|e| panic!("cannot run {command:?}: {e}"));
        Self { line, child: Some(child), files }
    }

    /// The process id. The wrappers around the program exec it, so it is the program's own.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("not waited for").id()
    }

    /// Has it not ended yet?
    pub fn is_running(&self) -> bool {
        let child = Pid::from_child(self.child.as_ref().expect("not waited for"));
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(child), options).expect("a child").is_none()
    }

    /// Sends SIGKILL.
    pub fn kill(&mut self) {
        self.child.as_mut().expect("not waited for").kill().expect("kill");
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(self.child.as_ref().expect("not waited for"));
        rustix::process::kill_process(pid, signal).expect("kill");
    }

    /// Waits for the end.
    pub fn wait(mut self) -> Output {
        let mut child = self.child.take().expect("not waited for");
        let fd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).expect("pidfd_open");
        if !readable_within(fd, DEADLINE) {
            child.kill().expect("kill");
            child.wait().expect("wait");
            panic!("{} did not end in {DEADLINE:?}\n{}", self.line, self.files.read().as_text());
        }
        let status = child.wait().expect("wait");
        let Read { stdout, stderr } = self.files.read();
        Output { line: self.line.clone(), code: status.code(), stdout, stderr, files: self.files.clone() }
    }

    /// Returns once its output holds `text`.
    pub fn says(&self, text: &str) {
        let file =
            |path: &Path| super::wait::for_file(path, &format!("{text:?}"), |content| content.contains(text));
        file(&self.files.stdout);
    }

    /// The file of its standard error.
    pub fn stderr_file(&self) -> &Path {
        &self.files.stderr
    }
}

impl Drop for Running {
    /// Nobody waited, because the test failed or left it to the host to end it.
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Input as a file: no pipe that must be fed while the program runs.
fn input(stdin: &[u8], output: &Path) -> Stdio {
    if stdin.is_empty() {
        return Stdio::null();
    }
    let path = output.with_extension("in");
    let mut file = File::create_new(&path).expect("a file for stdin");
    file.write_all(stdin).expect("writing a file for stdin");
    File::open(&path).expect("a file for stdin").into()
}

struct Read {
    stdout: String,
    stderr: String,
}

impl Files {
    fn read(&self) -> Read {
        let text =
            |path: &Path| String::from_utf8_lossy(&fs::read(path).expect("a program's output")).into_owned();
        Read { stdout: text(&self.stdout), stderr: text(&self.stderr) }
    }
}

impl Read {
    fn as_text(&self) -> String {
        format!("stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr)
    }
}

impl Output {
    /// Fails the test unless the program ended well.
    #[track_caller]
    pub fn ok(self) -> Self {
        self.exits(0)
    }

    /// Fails the test unless the program ended with this exit code.
    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self}");
        self
    }

    /// Fails the test unless the program failed.
    #[track_caller]
    pub fn fails(self) -> Self {
        assert_ne!(self.code, Some(0), "{self}");
        self
    }

    /// What has been written to its standard output until now: a container it started may still write.
    pub fn stdout_now(&self) -> String {
        self.files.read().stdout
    }

    /// The file of its standard output.
    pub fn stdout_file(&self) -> &Path {
        &self.files.stdout
    }
}

impl std::fmt::Display for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { line, code, stdout, stderr, .. } = self;
        write!(f, "{line}\nexit code: {code:?}\nstdout:\n{stdout}\nstderr:\n{stderr}")
    }
}

/// Where a program is. One that is missing fails the test: skipping would hide what is not tested.
pub fn program(name: &str) -> PathBuf {
    let places = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
    let found = places.iter().map(|place| Path::new(place).join(name)).find(|path| path.exists());
    found.unwrap_or_else(|| panic!("{name} is not installed: run tests/setup.sh as root, it installs all"))
}

/// Ends with the process, whoever waits for it.
pub fn process(pid: u32) -> Process {
    Process::of(pid)
}
