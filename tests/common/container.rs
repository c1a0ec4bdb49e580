//! One container: described, created and led through its life.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::Value;

use super::bundle::{self, Description, HookCall, MAPPED};
use super::cgroup;
use super::command::{Output, Running};
use super::host::{Host, make_dir};
use super::probe::{self, Probe};
use super::rootfs;
use super::runtime::{Runtime, State, Step, containers_conf};
use super::view::script;
use super::wait::{DEADLINE, Process};

/// A change to the root file system, or to config.json.
type Furnish<'h> = Box<dyn FnOnce(&Path) + 'h>;
type Tweak<'h> = Box<dyn FnOnce(&mut Value) + 'h>;

/// Describes a container. By default it sleeps, asks for nothing, and has the hooks of vgpu.
pub struct Builder<'h> {
    host: &'h Host,
    runtime: Runtime,
    id: String,
    description: Description,
    recorded: bool,
    root: Option<PathBuf>,
    overlay: bool,
    furnish: Vec<Furnish<'h>>,
    tweaks: Vec<Tweak<'h>>,
    podman_args: Vec<String>,
}

impl<'h> Builder<'h> {
    /// See [`Host::container`].
    pub fn new(host: &'h Host, runtime: Runtime, id: String) -> Self {
        let hooks = ["createRuntime", "poststop"]
            .map(|stage| HookCall { stage: stage.to_owned(), argv: host.hook(stage) });
        let args = ["sleep", "1000000"].map(str::to_owned).to_vec();
        Self {
            host,
            runtime,
            id,
            description: Description { args, hooks: hooks.to_vec(), ..Description::default() },
            recorded: false,
            root: None,
            overlay: false,
            furnish: Vec::new(),
            tweaks: Vec::new(),
            podman_args: Vec::new(),
        }
    }

    /// Its host.
    pub fn host(&self) -> &'h Host {
        self.host
    }

    /// Another id than the host's next one.
    pub fn id(mut self, id: &str) -> Self {
        id.clone_into(&mut self.id);
        self
    }

    /// What it runs.
    pub fn args(mut self, args: &[&str]) -> Self {
        self.description.args = args.iter().map(|arg| (*arg).to_owned()).collect();
        self
    }

    /// An annotation.
    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.description.annotations.insert(key.to_owned(), value.to_owned());
        self
    }

    /// A variable in its environment.
    pub fn env(mut self, key: &str, value: &str) -> Self {
        self.description.env.push(format!("{key}={value}"));
        self
    }

    /// With uid and gid mappings.
    pub fn mapped(self) -> Self {
        self.mapped_if(true)
    }

    /// With uid and gid mappings, or without.
    pub fn mapped_if(mut self, mapped: bool) -> Self {
        self.description.mapped = mapped;
        self
    }

    /// In the host's pid namespace: killing its first process does not end the others.
    pub fn host_pids(mut self) -> Self {
        self.description.host_pids = true;
        self
    }

    /// With a read-only root.
    pub fn read_only(mut self) -> Self {
        self.description.read_only = true;
        self
    }

    /// Without any hook.
    pub fn no_hooks(mut self) -> Self {
        self.description.hooks.clear();
        self
    }

    /// Without the hooks of a stage.
    pub fn without_hooks_of(mut self, stage: &str) -> Self {
        self.description.hooks.retain(|hook| hook.stage != stage);
        self
    }

    /// One more hook.
    pub fn hook(mut self, stage: &str, argv: &[&str]) -> Self {
        let argv = argv.iter().map(|arg| (*arg).to_owned()).collect();
        self.description.hooks.push(HookCall { stage: stage.to_owned(), argv });
        self
    }

    /// In its `/proc`, the kernel tells of the driver: of every GPU of the host.
    pub fn with_driver_in_proc(mut self) -> Self {
        let (script, root) = (script("kernel.sh"), self.host.driver_root());
        let argv = ["/bin/sh", script.to_str().expect("UTF-8"), root.to_str().expect("UTF-8")];
        let argv = argv.map(str::to_owned).to_vec();
        self.description.hooks.insert(0, HookCall { stage: "createRuntime".to_owned(), argv });
        self
    }

    /// Runs each hook with this command line in front of it, such as `strace -o FILE`.
    pub fn hooks_under(mut self, prefix: &[&str]) -> Self {
        for hook in &mut self.description.hooks {
            let prefix = prefix.iter().map(|arg| (*arg).to_owned());
            hook.argv = prefix.chain(hook.argv.drain(..)).collect();
        }
        self
    }

    /// Writes down how each hook ends; see [`Container::hook_codes`].
    pub fn recorded(mut self) -> Self {
        self.recorded = true;
        self
    }

    /// On an existing root file system instead of a fresh one.
    pub fn on_root(mut self, root: &Path) -> Self {
        self.root = Some(root.to_owned());
        self
    }

    /// On an overlay, with a writable layer of its own.
    pub fn overlay(mut self) -> Self {
        self.overlay = true;
        self
    }

    /// Changes the root file system before it is given to the container's user.
    pub fn furnish(mut self, change: impl FnOnce(&Path) + 'h) -> Self {
        self.furnish.push(Box::new(change));
        self
    }

    /// Changes config.json as it will be written. Not for podman, which writes its own.
    pub fn tweak(mut self, change: impl FnOnce(&mut Value) + 'h) -> Self {
        assert!(!self.runtime.is_podman(), "podman writes its own config.json; use podman_arg");
        self.tweaks.push(Box::new(change));
        self
    }

    /// One more option of `podman create` and `podman run`.
    pub fn podman_arg(mut self, arg: &str) -> Self {
        assert!(self.runtime.is_podman(), "not podman");
        self.podman_args.push(arg.to_owned());
        self
    }

    /// Writes bundle and root file system. Nothing runs yet.
    pub fn build(mut self) -> Container<'h> {
        let dir = self.host.dir().join("containers").join(&self.id);
        make_dir(&dir);
        if self.recorded {
            self.record(&dir);
        }
        let root = self.make_root(&dir);
        let container = Container {
            host: self.host,
            runtime: self.runtime,
            id: self.id,
            dir,
            root,
            description: self.description,
            podman_args: self.podman_args,
            execs: Cell::new(0),
        };
        container.write(self.tweaks);
        container
    }

    fn make_root(&mut self, dir: &Path) -> PathBuf {
        let owner = if self.description.mapped { MAPPED } else { 0 };
        let root = self.root.take().unwrap_or_else(|| {
            let root = dir.join("rootfs");
            rootfs::plain(self.host, &root, owner);
            root
        });
        self.furnish.drain(..).for_each(|change| change(&root));
        rootfs::own(&root, owner);
        if self.overlay { rootfs::overlay(self.host, &root, dir) } else { root }
    }

    fn record(&mut self, dir: &Path) {
        let (script, dir) = (script("record.sh"), dir.to_str().expect("UTF-8"));
        let script = script.to_str().expect("UTF-8");
        for hook in &mut self.description.hooks {
            let prefix = ["/bin/sh", script, dir, &hook.stage].map(str::to_owned);
            hook.argv = prefix.into_iter().chain(hook.argv.drain(..)).collect();
        }
    }
}

/// A container of a host's. What still runs of it ends with the host.
pub struct Container<'h> {
    host: &'h Host,
    runtime: Runtime,
    id: String,
    dir: PathBuf,
    root: PathBuf,
    description: Description,
    podman_args: Vec<String>,
    execs: Cell<u32>,
}

impl Container<'_> {
    fn write(&self, tweaks: Vec<Tweak<'_>>) {
        let write = |name: &str, content: String| fs::write(self.dir.join(name), content).expect("writing");
        if self.runtime.is_podman() {
            let hooks_dir = self.dir.join("hooks.d");
            make_dir(&hooks_dir);
            for (name, content) in bundle::hooks_d(&self.description.hooks) {
                fs::write(hooks_dir.join(name), content).expect("writing");
            }
            write("containers.conf", containers_conf(self, hooks_dir.to_str().expect("UTF-8")));
        } else {
            let cgroup = format!("/{}/{}", self.host.name(), self.id);
            let mut config = bundle::config(&self.description, &self.root, &cgroup);
            tweaks.into_iter().for_each(|change| change(&mut config));
            write("config.json", config.to_string());
        }
    }

    /// Runs the commands of a step, the next only if the one before ended well.
    fn step(&self, step: Step) -> Output {
        let mut last = None;
        for command in self.runtime.commands(self, step) {
            let output = self.host.view().run(&command);
            let done = output.code == Some(0);
            last = Some(output);
            if !done {
                break;
            }
        }
        last.expect("a step has commands")
    }

    /// Creates it; its hooks run here, but under containerd in [`Self::start`].
    pub fn create(&self) -> Output {
        self.step(Step::Create)
    }

    /// Starts its first process.
    pub fn start(&self) -> Output {
        self.step(Step::Start)
    }

    /// Creates and starts it: the last command that was run, which failed if either did.
    pub fn up(&self) -> Output {
        let created = self.create();
        if created.code == Some(0) { self.start() } else { created }
    }

    /// Runs it in the foreground, to its end.
    pub fn run(&self) -> Output {
        self.spawn().wait()
    }

    /// Starts to run it in the foreground.
    pub fn spawn(&self) -> Running {
        self.spawn_step(Step::Run)
    }

    /// Starts the first command of a step, and does not wait for it.
    pub fn spawn_step(&self, step: Step) -> Running {
        self.host.view().start(&self.runtime.commands(self, step)[0], b"")
    }

    /// Runs another process in it.
    pub fn exec(&self, args: &[&str]) -> Output {
        if self.description.mapped {
            self.executed();
        }
        if self.runtime != Runtime::Containerd {
            return self.step(Step::Exec(args));
        }
        // On a busy machine `ctr` ends before it has passed on all that the process wrote.
        let script = "exec \"$@\" >/tmp/executed";
        let mut output = self.step(Step::Exec(&[&["sh", "-c", script, "sh"], args].concat()));
        let written = self.host.view().path(&self.root).join("tmp/executed");
        output.stdout = fs::read_to_string(written).unwrap_or_default();
        output
    }

    /// Returns once its first process is its own program, and no longer the runtime's: until then crun cannot
    /// enter a container that has mappings (EPERM), and `crun start` returns before. execve(2) tells nobody
    /// that it is done: asking again is the event.
    fn executed(&self) {
        let exe = format!("/proc/{}/exe", self.pid());
        let end = Instant::now() + DEADLINE;
        while !fs::read_link(&exe).expect("a living process").ends_with("busybox") {
            assert!(Instant::now() < end, "{} did not execute its program in {DEADLINE:?}", self.id);
            std::thread::yield_now();
        }
    }

    /// What a process in it sees; `paths` are opened.
    pub fn probe(&self, paths: &[&str]) -> Probe {
        probe::parse(&self.exec(&probe::argv(paths)).ok().stdout)
    }

    /// Its state; none once it is deleted, or when it never was.
    pub fn state(&self) -> Option<State> {
        let output = self.step(Step::State);
        (output.code == Some(0)).then(|| self.runtime.parse_state(&self.id, &output.stdout))
    }

    /// The host pid of its first process, which must be there.
    pub fn pid(&self) -> u32 {
        let state = self.state().unwrap_or_else(|| panic!("{} is not there", self.id));
        assert_ne!(state.pid, 0, "{} has no process: {state:?}", self.id);
        state.pid
    }

    /// Sends a signal to its first process.
    pub fn kill(&self, signal: &str) -> Output {
        self.step(Step::Kill(signal))
    }

    /// Removes it; it must have stopped.
    pub fn delete(&self) -> Output {
        self.step(Step::Delete)
    }

    /// Ends and removes it.
    pub fn delete_force(&self) -> Output {
        self.step(Step::DeleteForce)
    }

    /// Kills its first process, waits for the end, removes it.
    pub fn down(&self) -> Output {
        let process = Process::of(self.pid());
        self.kill("KILL").ok();
        process.ended();
        self.delete_stopped()
    }

    /// Removes it as soon as its runtime has noticed that it stopped. containerd and podman notice when their
    /// helper has reaped the first process and told them, and offer nothing to wait on: asking again is the event.
    fn delete_stopped(&self) -> Output {
        let end = Instant::now() + DEADLINE;
        while self.state().is_some_and(|state| state.status != "stopped") {
            assert!(Instant::now() < end, "{} did not stop: {:?}", self.id, self.state());
        }
        self.delete()
    }

    /// What the device cgroup of its first process allows; see [`cgroup::device_rules`].
    pub fn device_rules(&self) -> Vec<String> {
        cgroup::device_rules(self.host, self.pid())
    }

    /// The id its runtime gives it in the OCI state.
    pub fn oci_id(&self) -> String {
        if !self.runtime.is_podman() {
            return self.id.clone();
        }
        let base = self.runtime.commands(self, Step::State).remove(0);
        let at = base.iter().position(|word| word == "inspect").expect("podman inspect");
        let mut command = base[..at].to_vec();
        command.extend(["inspect", "--format", "{{.Id}}", &self.id].map(str::to_owned));
        self.host.view().run(&command).ok().stdout.trim().to_owned()
    }

    /// The exit codes of a stage's hooks until now. Only when [`Builder::recorded`].
    pub fn hook_codes(&self, stage: &str) -> Vec<i32> {
        let codes = self.recording(stage, "codes");
        codes.lines().map(|code| code.parse().expect("an exit code")).collect()
    }

    /// What a stage's hooks said until now. Only when [`Builder::recorded`].
    pub fn hook_stderr(&self, stage: &str) -> String {
        self.recording(stage, "stderr")
    }

    /// The OCI state that a stage's last hook was given. Only when [`Builder::recorded`].
    pub fn hook_state(&self, stage: &str) -> String {
        self.recording(stage, "state")
    }

    fn recording(&self, stage: &str, what: &str) -> String {
        fs::read_to_string(self.dir.join(format!("{stage}.{what}"))).unwrap_or_default()
    }

    /// Its host.
    pub fn host(&self) -> &Host {
        self.host
    }

    /// What runs it.
    pub fn runtime(&self) -> Runtime {
        self.runtime
    }

    /// Its id, or with podman its name.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Its directory: the bundle.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The same as text.
    pub fn dir_str(&self) -> &str {
        self.dir.to_str().expect("UTF-8")
    }

    /// Its root file system. An overlay is mounted in the host's view only: see [`super::view::View::path`].
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// What it is to be.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// More options for podman.
    pub fn podman_args(&self) -> &[String] {
        &self.podman_args
    }

    /// Where containerd writes the output of a container in the background.
    pub fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// A number for each exec under containerd, which wants a name for it.
    pub fn next_exec(&self) -> u32 {
        self.execs.replace(self.execs.get() + 1)
    }
}
