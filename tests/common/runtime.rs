//! The command lines of the runtimes. Each step of a container's life is a list of commands.

use super::bundle::MAPPED;
use super::container::Container;
use super::view::Cgroups;

/// A way to run containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runtime {
    /// runc, with a bundle.
    Runc,
    /// crun, with a bundle.
    Crun,
    /// podman over runc.
    PodmanRunc,
    /// podman over crun.
    PodmanCrun,
    /// containerd and its shim over runc, driven by `ctr`, with a bundle's config.json.
    Containerd,
}

/// The runtimes that take a bundle, on each layout of cgroups.
pub const WITH_BUNDLE: [(Cgroups, Runtime); 5] = [
    (Cgroups::V1, Runtime::Runc),
    (Cgroups::Hybrid, Runtime::Runc),
    (Cgroups::V2, Runtime::Runc),
    (Cgroups::V1, Runtime::Crun),
    (Cgroups::V2, Runtime::Crun),
];

/// A step of a container's life.
#[derive(Clone, Copy, Debug)]
pub enum Step<'a> {
    /// Up to, not including, its first process. For containerd, which creates and starts in one, nothing of
    /// the container exists after it, and its hooks run in [`Step::Start`].
    Create,
    /// Its first process.
    Start,
    /// Everything in one, in the foreground.
    Run,
    /// Another process, in the foreground.
    Exec(&'a [&'a str]),
    /// Its state; see [`Runtime::parse_state`].
    State,
    /// A signal to its first process.
    Kill(&'a str),
    /// Removes a stopped container.
    Delete,
    /// Ends and removes a container.
    DeleteForce,
}

/// The state of a container.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    /// `created`, `running`, `stopped`
    pub status: String,
    /// The host pid of its first process; 0 when there is none.
    pub pid: u32,
}

impl Runtime {
    /// Is it podman, which writes its own spec?
    pub fn is_podman(self) -> bool {
        matches!(self, Self::PodmanRunc | Self::PodmanCrun)
    }

    /// Does a container with uid and gid mappings have a device cgroup that forbids anything?
    /// podman writes no device rules for it; runc adds its own denial of all, crun does not.
    pub fn confines_mapped(self) -> bool {
        self != Self::PodmanCrun
    }

    /// The commands of a step.
    pub fn commands(self, container: &Container, step: Step) -> Vec<Vec<String>> {
        match self {
            Self::Runc | Self::Crun => self.oci(container, step),
            Self::PodmanRunc | Self::PodmanCrun => self.podman(container, step),
            Self::Containerd => containerd(container, step),
        }
    }

    fn oci(self, container: &Container, step: Step) -> Vec<Vec<String>> {
        let (id, bundle) = (container.id(), container.dir_str());
        let root = container.host().dir().join("runtime");
        let mut base = match self {
            Self::Crun => crun(container),
            _ => strings(&["runc"]),
        };
        base.extend(strings(&["--root", root.to_str().expect("UTF-8")]));
        let command = |args: &[&str]| [base.clone(), strings(args)].concat();
        vec![match step {
            Step::Create => command(&["create", "--bundle", bundle, id]),
            Step::Start => command(&["start", id]),
            Step::Run => command(&["run", "--bundle", bundle, id]),
            Step::Exec(args) => command(&[&["exec", id], args].concat()),
            Step::State => command(&["state", id]),
            Step::Kill(signal) => command(&["kill", id, signal]),
            Step::Delete => command(&["delete", id]),
            Step::DeleteForce => command(&["delete", "--force", id]),
        }]
    }

    fn podman(self, container: &Container, step: Step) -> Vec<Vec<String>> {
        let id = container.id();
        let base = self.podman_base(container);
        let command = |args: &[&str]| [base.clone(), strings(args)].concat();
        let with_description = |verb: &str| {
            let mut line = [base.clone(), strings(&[verb]), podman_options(container)].concat();
            line.extend(container.description().args.clone());
            line
        };
        vec![match step {
            Step::Create => return vec![with_description("create"), command(&["init", id])],
            Step::Start => command(&["start", id]),
            Step::Run => with_description("run"),
            Step::Exec(args) => command(&[&["exec", id], args].concat()),
            Step::State => command(&["inspect", "--type", "container", "--format", "{{json .State}}", id]),
            Step::Kill(signal) => command(&["kill", "--signal", signal, id]),
            Step::Delete => command(&["rm", id]),
            Step::DeleteForce => command(&["rm", "--force", "--time", "0", id]),
        }]
    }

    /// Everything podman keeps is the host's own; its runroot may have 50 characters. `containers.conf` names the hooks directory:
    /// the commands that podman's own helpers run later do not get `--hooks-dir`.
    fn podman_base(self, container: &Container) -> Vec<String> {
        let root = container.host().dir().join("podman");
        let root = root.to_str().expect("UTF-8");
        let conf = format!("CONTAINERS_CONF={}/containers.conf", container.dir_str());
        let runtime = if self == Self::PodmanCrun { "crun" } else { "runc" };
        strings(&["env", &conf, "podman", "--storage-driver", "vfs", "--cgroup-manager", "cgroupfs"])
            .into_iter()
            .chain(strings(&["--root", root, "--runroot", "/run/podman", "--tmpdir", "/run/podman/tmp"]))
            .chain(strings(&["--runtime", runtime]))
            .collect()
    }

    /// Reads what the command of [`Step::State`] printed.
    pub fn parse_state(self, id: &str, printed: &str) -> State {
        match self {
            Self::Containerd => containerd_state(id, printed),
            _ => json_state(printed),
        }
    }
}

/// On v2, crun insists on a resource limit that root may not raise everywhere; see `setrlimit.c`.
fn crun(container: &Container) -> Vec<String> {
    let host = container.host();
    match host.view().cgroups() {
        Cgroups::V2 => strings(&["env", &format!("LD_PRELOAD={}", host.setrlimit_library()), "crun"]),
        Cgroups::V1 | Cgroups::Hybrid => strings(&["crun"]),
    }
}

fn podman_options(container: &Container) -> Vec<String> {
    let description = container.description();
    let mut options = strings(&["--name", container.id(), "--network", "none", "--pids-limit", "-1"]);
    options.push(format!("--cgroup-parent=/{}", container.host().name()));
    options.extend(description.annotations.iter().map(|(key, value)| format!("--annotation={key}={value}")));
    options.extend(description.env.iter().map(|variable| format!("--env={variable}")));
    if description.mapped {
        let ids = format!("0:{MAPPED}:65536");
        options.extend([format!("--uidmap={ids}"), format!("--gidmap={ids}")]);
    }
    if description.host_pids {
        options.push("--pid=host".to_owned());
    }
    if description.read_only {
        options.push("--read-only".to_owned());
    }
    options.extend(container.podman_args().iter().cloned());
    options.extend(["--rootfs".to_owned(), container.root().to_str().expect("UTF-8").to_owned()]);
    options
}

/// The containers.conf of a podman container.
pub fn containers_conf(container: &Container, hooks_dir: &str) -> String {
    let host = container.host();
    let preload = match (container.runtime(), host.view().cgroups()) {
        (Runtime::PodmanCrun, Cgroups::V2) => format!(", \"LD_PRELOAD={}\"", host.setrlimit_library()),
        _ => String::new(),
    };
    format!(
        "[containers]\ndefault_ulimits = [\"nofile=1024:1024\", \"nproc=1024:1024\"]\nlog_driver = \"k8s-file\"\n\
         [engine]\nevents_logger = \"file\"\nhooks_dir = [{hooks_dir:?}]\n\
         conmon_env_vars = [\"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\"{preload}]\n"
    )
}

fn containerd(container: &Container, step: Step) -> Vec<Vec<String>> {
    let id = container.id();
    let socket = container.host().containerd();
    let config = format!("{}/config.json", container.dir_str());
    let log = format!("file://{}", container.log().display());
    let command = |args: &[&str]| strings(&[&["ctr", "--address", &socket], args].concat());
    let exec = format!("{id}-{}", container.next_exec());
    let task = |args: &[&str]| command(&[&["tasks"], args].concat());
    match step {
        Step::Create => vec![command(&["containers", "create", "--config", &config, id])],
        Step::Start => vec![task(&["start", "--detach", "--log-uri", &log, id])],
        Step::Run => vec![command(&["run", "--rm", "--config", &config, id])],
        Step::Exec(args) => vec![task(&[&["exec", "--exec-id", &exec, id], args].concat())],
        Step::State => vec![task(&["list"])],
        Step::Kill(signal) => vec![task(&["kill", "--signal", signal, id])],
        Step::Delete => vec![task(&["delete", id]), command(&["containers", "delete", id])],
        Step::DeleteForce => vec![task(&["delete", "--force", id]), command(&["containers", "delete", id])],
    }
}

/// runc and crun print the OCI state, podman something alike.
fn json_state(printed: &str) -> State {
    let state: serde_json::Value = serde_json::from_str(printed).unwrap_or_else(|e| panic!("{e}: {printed}"));
    let field = |names: [&str; 2]| names.iter().find_map(|name| state.get(name)).cloned().unwrap_or_default();
    let status = match field(["status", "Status"]).as_str().expect("a status") {
        "initialized" => "created".to_owned(),
        "exited" => "stopped".to_owned(),
        other => other.to_owned(),
    };
    let pid = field(["pid", "Pid"]).as_u64().and_then(|pid| pid.try_into().ok()).unwrap_or(0);
    State { status, pid }
}

/// `ctr tasks list` prints a table: id, pid, status in capitals. A container without a task is created.
fn containerd_state(id: &str, printed: &str) -> State {
    let mut lines = printed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let line = lines.find(|line| line.first() == Some(&id));
    match line.as_deref() {
        Some([_, pid, status]) => {
            State { status: status.to_lowercase(), pid: pid.parse().expect("a process id") }
        }
        _ => State { status: "created".to_owned(), pid: 0 },
    }
}

fn strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}
