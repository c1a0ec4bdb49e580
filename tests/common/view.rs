//! The private mount namespace of a simulated host: cgroups laid out as asked, `/run` and `/dev/shm` its
//! own. It is held by one shell, `view.sh`, which also cleans up. Programs enter it with nsenter.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::command::{Output, Running, program};
use super::wait::{DEADLINE, readable, readable_within};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// How a host lays out its cgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cgroups {
    /// v1 only.
    V1,
    /// v1 controllers and, at `unified`, a v2 tree without controllers.
    Hybrid,
    /// v2 only.
    V2,
}

/// The namespace. Dropping it ends all that runs in its cgroups.
pub struct View {
    name: String,
    dir: PathBuf,
    cgroups: Cgroups,
    keeper: Child,
    outputs: AtomicU32,
}

impl View {
    /// Lays out the namespace. `name` is the host's top cgroup, `dir` its directory.
    pub fn new(cgroups: Cgroups, name: &str, dir: &Path) -> Self {
        let layout = match cgroups {
            Cgroups::V1 => "v1",
            Cgroups::Hybrid => "hybrid",
            Cgroups::V2 => "v2",
        };
        fs::create_dir(dir.join("output")).expect("a directory for output");
        let mut keeper = Command::new(program("unshare"))
            .args(["--mount", "--propagation", "private", "sh"])
            .arg(script("view.sh"))
            .args([layout, name])
            .arg(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("unshare");
        let stdout = keeper.stdout.as_mut().expect("a pipe");
        readable(&stdout, "view.sh");
        let mut ready = [0; 6];
        if stdout.read_exact(&mut ready).is_err() {
            panic!("cannot lay out cgroups {layout}: {}", text(keeper.stderr.take()));
        }
        Self { name: name.to_owned(), dir: dir.to_owned(), cgroups, keeper, outputs: AtomicU32::new(0) }
    }

    /// Runs a program to its end.
    pub fn run<S: AsRef<str>>(&self, argv: &[S]) -> Output {
        self.start(argv, b"").wait()
    }

    /// Starts a program with this standard input, an empty working directory and a minimal environment.
    ///
    /// It is put into a cgroup of the host's, so that it and its children end with the host.
    pub fn start<S: AsRef<str>>(&self, argv: &[S], stdin: &[u8]) -> Running {
        let argv: Vec<&str> = argv.iter().map(AsRef::as_ref).collect();
        let tools = match self.cgroups {
            Cgroups::V2 => format!("/sys/fs/cgroup/{}/tools/cgroup.procs", self.name),
            Cgroups::V1 | Cgroups::Hybrid => {
                format!("/sys/fs/cgroup/devices/{}/tools/cgroup.procs", self.name)
            }
        };
        let mut command = Command::new(program("nsenter"));
        command
            .arg(format!("--mount=/proc/{}/ns/mnt", self.keeper.id()))
            .args([
                "--",
                "sh",
                "-c",
                r#"echo 0 >"$0" && exec "$@""#,
                &tools,
                &program(argv[0]).to_string_lossy(),
            ])
            .args(&argv[1..])
            .env_clear()
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOME", &self.dir)
            .env("LC_ALL", "C");
        let n = self.outputs.fetch_add(1, Ordering::Relaxed);
        Running::start(command, argv.join(" "), stdin, &self.dir.join(format!("output/{n}")))
    }

    /// A path of the view, as this process can open it.
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        let inside = path.as_ref().strip_prefix("/").expect("an absolute path");
        PathBuf::from(format!("/proc/{}/root", self.keeper.id())).join(inside)
    }

    /// Its mount namespace, to be entered.
    pub fn namespace(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/ns/mnt", self.keeper.id()))
    }

    /// The view's mount table, `/proc/self/mountinfo`.
    pub fn mounts(&self) -> String {
        fs::read_to_string(format!("/proc/{}/mountinfo", self.keeper.id())).expect("mountinfo")
    }

    /// How cgroups are laid out.
    pub fn cgroups(&self) -> Cgroups {
        self.cgroups
    }
}

impl Drop for View {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let fd = pidfd_open(Pid::from_child(&self.keeper), PidfdFlags::empty()).expect("pidfd_open");
        let ended = readable_within(fd, DEADLINE);
        if !ended {
            let _ = self.keeper.kill();
        }
        let clean = self.keeper.wait().is_ok_and(|status| status.success());
        let said = text(self.keeper.stderr.take());
        if !(ended && clean && said.is_empty()) {
            let message = format!("cleaning up after {}: {said}", self.name);
            // A second panic would abort and hide the first.
            if std::thread::panicking() { eprintln!("{message}") } else { panic!("{message}") }
        }
    }
}

/// The path of a file of the harness.
pub fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/common").join(name)
}

fn text(pipe: Option<impl Read>) -> String {
    let mut text = String::new();
    if let Some(mut pipe) = pipe {
        let _ = pipe.read_to_string(&mut text);
    }
    text
}
