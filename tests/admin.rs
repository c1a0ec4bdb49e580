//! What people see: the admin's commands and the errors of hooks, word for word, on a simulated host.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::process::Command;

use common::command::{Output, program};
use common::container::{Builder, Container};
use common::host::Host;
use common::leases::{asking, assert_free, assert_refused, holders, host_with_one_vgpu, one_vgpu};
use common::probe::{self, Opened};
use common::runtime::{Runtime, Step};
use common::sees::assert_sees_its_lease;
use common::view::Cgroups;
use common::wait::{DEADLINE, Process};
use serde_json::{Value, json};

const VGPU: &str = env!("CARGO_BIN_EXE_vgpu");

/// Two GPUs of 40 GiB, four `small` each, and NVML to ask.
fn host_with_nvml(cgroups: Cgroups) -> Host {
    let host = Host::new(cgroups);
    host.install_nvml(&[&host.gpus[1], &host.gpus[0]]);
    host
}

fn up<'h>(builder: Builder<'h>) -> Container<'h> {
    let container = builder.build();
    container.up().ok();
    container
}

/// Its first process is killed; nobody tells vgpu.
fn die(container: &Container) {
    let init = Process::of(container.pid());
    init.kill();
    init.ended();
}

/// What `vgpu status --json` says of a container's lease.
fn lease_of(status: &Value, container: &Container) -> Value {
    let leases = status["leases"].as_array().expect("leases");
    leases.iter().find(|lease| lease["container"] == container.id()).expect("a lease").clone()
}

/// `c1  pid 12  since 2026-01-01T00:00:00Z`
fn shown(status: &Value, container: &Container) -> String {
    let lease = lease_of(status, container);
    format!("{}  pid {}  since {}", container.id(), lease["pid"], lease["since"].as_str().expect("a time"))
}

#[test]
#[ignore = "needs root: starts containers"]
fn status_shows_who_holds_what() {
    let host = host_with_nvml(Cgroups::V1);
    let [first, second] = [0, 1].map(|at| host.gpus[at].uuid.as_str());
    let all_free = "  small/0    10GiB   25%  free\n  small/1    10GiB   25%  free\n  \
                    small/2    10GiB   25%  free\n  small/3    10GiB   25%  free\n";
    assert_eq!(
        host.vgpu(&["status"]).ok().stdout,
        format!(
            "{first}  NVIDIA A100-SXM4-40GB  /dev/nvidia1  40GiB  ready\n{all_free}\
             {second}  NVIDIA A100-SXM4-40GB  /dev/nvidia0  40GiB  ready\n{all_free}"
        )
    );

    let living = up(asking(&host, Runtime::Runc));
    let dead = up(asking(&host, Runtime::Runc));
    let retired = up(asking(&host, Runtime::Runc));
    die(&dead);
    host.write_pool(&format!(
        "[[type]]\nname = \"small\"\nmemory = \"10GiB\"\ncompute = 25\n\
         [[type]]\nname = \"half\"\nmemory = \"20GiB\"\ncompute = 50\n\
         [[gpu]]\nuuid = {first:?}\nvgpus = {{ small = 2, half = 1 }}\n\
         [[gpu]]\nuuid = {second:?}\nvgpus = {{ half = 2 }}\n\
         [[gpu]]\npci = \"0000:ff:00.0\"\nvgpus = {{ half = 1 }}\n"
    ));
    let node = host.driver_root().join("dev/nvidia0");
    fs::remove_file(&node).expect("a node");
    let status = host.status();
    let (living, retired) = (shown(&status, &living), shown(&status, &retired));
    assert_eq!(
        host.vgpu(&["status"]).ok().stdout,
        format!(
            "{first}  NVIDIA A100-SXM4-40GB  /dev/nvidia1  40GiB  ready\n  \
             small/0    10GiB   25%  {living}\n  \
             small/1    10GiB   25%  {}  gone; the next request takes it\n  \
             half/0     20GiB   50%  free\n\
             {second}  NVIDIA A100-SXM4-40GB  /dev/nvidia0  40GiB  unusable: its node {} is gone; \
             `nvidia-modprobe -c=0` on the host makes it\n  \
             half/0    20GiB   50%  free\n  \
             half/1    20GiB   50%  free\n\
             retired (held, but no longer in the pool file or on the host)\n  \
             {first}/small/2    10GiB   25%  {retired}\n\
             absent: no GPU of this host is pci = \"0000:ff:00.0\"\n",
            dead.id(),
            node.display()
        )
    );
}

#[test]
#[ignore = "needs root: starts containers"]
fn status_json_has_the_promised_shape() {
    for nvml in [true, false] {
        let host = if nvml { host_with_nvml(Cgroups::V2) } else { Host::new(Cgroups::V2) };
        let container = up(asking(&host, Runtime::Runc));
        let since = lease_of(&host.status(), &container)["since"].clone();
        let seconds = since.as_str().expect("a time").parse::<jiff::Timestamp>().expect("RFC 3339");
        assert_eq!(since, seconds.to_string(), "whole seconds");
        let gpu = |at: usize, first: Value| {
            let gpu = &host.gpus[at];
            let vgpu = |n: usize| {
                let lease = if n == 0 { first.clone() } else { Value::Null };
                json!({
                    "id": format!("{}/small/{n}", gpu.uuid), "type": "small",
                    "memory": 10_u64 << 30, "compute": 25, "lease": lease,
                })
            };
            json!({
                "uuid": gpu.uuid, "name": gpu.name, "minor": gpu.minor,
                "memory": if nvml { json!(40_u64 << 30) } else { Value::Null },
                "state": "ready", "vgpus": Vec::from([0, 1, 2, 3].map(vgpu)),
            })
        };
        let expected = json!({
            "version": 1,
            "gpus": [gpu(0, json!(container.id())), gpu(1, Value::Null)],
            "retired": [],
            "leases": [{
                "container": container.id(), "pid": container.pid(), "alive": true, "since": since,
                "vgpus": [format!("{}/small/0", host.gpus[0].uuid)],
            }],
        });
        assert_eq!(host.status(), expected);
    }
}

#[test]
#[ignore = "needs root: starts containers"]
fn status_json_names_what_is_not_as_it_should_be() {
    let host = host_with_nvml(Cgroups::V1);
    let container = up(asking(&host, Runtime::Runc));
    let uuid = &host.gpus[0].uuid;
    die(&container);
    host.write_pool(&format!(
        "[[type]]\nname = \"other\"\nmemory = \"1GiB\"\ncompute = 1\n\
         [[gpu]]\nuuid = {uuid:?}\nvgpus = {{ other = 1 }}\n[[gpu]]\npci = \"0000:ff:00.0\"\nvgpus = {{ other = 1 }}\n"
    ));
    let node = host.driver_root().join("dev/nvidia1");
    fs::remove_file(&node).expect("a node");
    let status = host.status();
    assert_eq!(status["gpus"][0]["state"], "unusable");
    let remedy = "`nvidia-modprobe -c=1` on the host makes it";
    assert_eq!(status["gpus"][0]["reason"], format!("its node {} is gone; {remedy}", node.display()));
    assert_eq!(status["absent"], json!(["pci = \"0000:ff:00.0\""]));
    assert_eq!(status["leases"][0]["alive"], json!(false));
    assert_eq!(
        status["retired"],
        json!([{
            "id": format!("{uuid}/small/0"), "type": "small", "memory": 10_u64 << 30, "compute": 25,
            "lease": container.id(),
        }])
    );
}

/// A retired vGPU is never given to anyone, and still counts against its GPU.
#[test]
#[ignore = "needs root: starts containers"]
fn a_retired_vgpu_counts_until_it_is_given_back() {
    let host = host_with_nvml(Cgroups::V1);
    let gpu = &host.gpus[0];
    host.write_pool(&one_vgpu(gpu));
    let holder = up(asking(&host, Runtime::Runc));
    host.write_pool(&one_vgpu(gpu).replace("whole", "all").replace("compute = 100", "compute = 50"));
    let said = assert_refused(&asking(&host, Runtime::Runc).build(), 75);
    let id = holder.id();
    assert_eq!(
        said,
        format!(
            "vgpu: no free vGPU: asked for 1 of type all; free: 0 all; idle, but without room beside what is \
             leased on the same GPU: 1; held by {id} (1); see `vgpu status`, or stop one of them\n"
        )
    );
    let status = host.vgpu(&["status"]).ok().stdout;
    assert!(status.contains("idle; no room beside what is leased on its GPU"), "{status}");
    assert_eq!(host.status()["gpus"][0]["vgpus"][0]["no_room"], true);
    holder.down().ok();
    assert_free(&host, Runtime::Runc);
}

#[test]
#[ignore = "needs root: starts containers"]
fn release_frees_the_dead_and_refuses_the_living() {
    let host = Host::new(Cgroups::V1);
    let [one, other] = ["web-1", "web-2"].map(|id| up(asking(&host, Runtime::Runc).id(id)));
    let pid = one.pid();
    assert_says(
        host.vgpu(&["release", "web-1"]),
        65,
        &format!(
            "container web-1 is running (pid {pid}); stop it, or `vgpu release --force web-1` takes its GPUs away"
        ),
    );
    assert_says(host.vgpu(&["release", "web"]), 65, "2 containers begin with \"web\"; name one whole");
    let none = "no container \"db\\n\" holds a vGPU; podman's names are not known here, only ids: \
        `vgpu status` shows them";
    assert_says(host.vgpu(&["release", "db\n"]), 65, none);
    assert_eq!(holders(&host), ["web-1", "web-2"]);

    die(&one);
    let freed = host.vgpu(&["release", "web-1"]).ok();
    assert_eq!(freed.stdout, format!("freed {}/small/0 of web-1\n", host.gpus[0].uuid));
    assert_eq!(holders(&host), ["web-2"]);
    drop(other);
}

/// One line on standard error, and nothing else.
#[track_caller]
fn assert_says(output: Output, exit: i32, line: &str) {
    let output = output.exits(exit);
    assert_eq!((output.stdout.as_str(), output.stderr), ("", format!("vgpu: {line}\n")));
}

/// By force, what the container held is closed to it first, then somebody else's.
#[test]
#[ignore = "needs root: starts containers"]
fn release_by_force_closes_the_devices() {
    for (cgroups, runtime) in
        [(Cgroups::V1, Runtime::Runc), (Cgroups::V2, Runtime::Runc), (Cgroups::V2, Runtime::Crun)]
    {
        let host = host_with_one_vgpu(cgroups);
        let container = up(asking(&host, runtime));
        let (id, node) = (container.id(), host.gpus[0].node());
        let opens = || container.probe(&[&node]).opened[&node].clone();
        assert_eq!(opens(), Opened::Allowed);
        let freed = host.vgpu(&["release", "--force", id]).ok();
        assert_eq!(freed.stdout, format!("freed {}/whole/0 of {id}\n", host.gpus[0].uuid));
        assert_eq!(opens(), Opened::Forbidden);
        assert_free(&host, runtime);
        assert_eq!(opens(), Opened::Forbidden);
        container.down().ok();
        assert_eq!(container.hook_codes("poststop"), [0]);
    }
}

/// It may have fallen off the bus; a container that has its node could still open it.
#[test]
#[ignore = "needs root: starts containers"]
fn release_by_force_closes_a_gpu_that_is_gone() {
    for cgroups in [Cgroups::V1, Cgroups::V2] {
        let host = Host::new(cgroups);
        let container = up(asking(&host, Runtime::Runc));
        let vgpu = lease_of(&host.status(), &container)["vgpus"][0].as_str().expect("an id").to_owned();
        let gpu = host.gpus.iter().find(|gpu| vgpu.starts_with(&gpu.uuid)).expect("a GPU of the host");
        let (id, node) = (container.id(), gpu.node());
        let opens = || container.probe(&[&node]).opened[&node].clone();
        fs::remove_dir_all(host.driver_root().join("proc/driver/nvidia/gpus").join(&gpu.pci)).expect("a GPU");
        let discovered = host.vgpu(&["discover"]).ok().stdout;
        assert!(!discovered.contains(&gpu.uuid), "{discovered}");
        assert_eq!(opens(), Opened::Allowed);
        assert_eq!(host.vgpu(&["release", "--force", id]).ok().stdout, format!("freed {vgpu} of {id}\n"));
        assert_eq!(opens(), Opened::Forbidden);
    }
}

#[test]
#[ignore = "needs root: starts containers"]
fn reclaim_frees_the_dead() {
    let host = Host::new(Cgroups::V2);
    assert_eq!(host.vgpu(&["reclaim"]).ok().stdout, "nothing to free\n");
    let living = up(asking(&host, Runtime::Crun));
    let dead = up(asking(&host, Runtime::Crun).annotation("vgpu.count", "2"));
    die(&dead);
    // Two more of one container: the other GPU's, and its neighbour on this one.
    let vgpus = lease_of(&host.status(), &dead)["vgpus"].clone();
    let lines = |verb: &str| {
        let vgpus = vgpus.as_array().expect("vgpus").iter().map(|id| id.as_str().expect("an id"));
        vgpus.map(|id| format!("{verb} {id} of {}\n", dead.id())).collect::<String>()
    };
    assert_eq!(host.vgpu(&["reclaim", "--dry-run"]).ok().stdout, lines("would free"));
    assert_eq!(holders(&host), [living.id(), dead.id()]);
    assert_eq!(host.vgpu(&["reclaim"]).ok().stdout, lines("freed"));
    assert_eq!(holders(&host), [living.id()]);
    assert_eq!(host.vgpu(&["reclaim"]).ok().stdout, "nothing to free\n");
}

/// A note never hides a refusal: the last line is the last one's.
#[test]
#[ignore = "needs root: makes device nodes"]
fn why_ends_in_the_last_refusal() {
    let host = Host::new(Cgroups::V1);
    let line = |at: u32, id: &str, exit: u32| format!("2026-01-01T00:00:0{at}.000Z {id} {exit} it is so\n");
    let [first, noted, last, later] = [line(1, "a", 75), line(2, "b", 0), line(3, "b", 69), line(4, "c", 0)];
    fs::write(host.state_dir().join("log.old"), [&first[..], &noted].concat()).expect("a log");
    fs::write(host.state_dir().join("log"), [&last[..], &later].concat()).expect("a log");
    assert_eq!(host.vgpu(&["why"]).ok().stdout, [&noted[..], &later, &first, &last].concat());
    assert_eq!(host.vgpu(&["why", "b"]).ok().stdout, [noted, last].concat());
}

on_every_runtime! {
    /// Whatever of it reaches the user, `vgpu why` has the line.
    fn why_tells_what_the_runtime_does_not(cgroups, runtime) {
        let host = Host::new(cgroups);
        assert_eq!(host.vgpu(&["why"]).ok().stdout, format!("{}/log tells of no failed hook\n", host.state_dir().display()));
        // Not recorded: the runtime is to get the hook's stderr itself.
        let container = host.container(runtime).annotation("vgpu.count", "9").build();
        let output = container.up().fails();
        let line = "no free vGPU: asked for 9 of type small; free: 8 small; see `vgpu status`, or ask for less";
        let crun = matches!(runtime, Runtime::Crun | Runtime::PodmanCrun);
        assert_eq!(output.stderr.contains(&format!("vgpu: {line}")), !crun, "{output}");
        assert!(!crun || output.stderr.contains("(exit code: 75)"), "{output}");

        let id = container.oci_id();
        for asked in [&["why", &id][..], &["why", &id[..id.len() - 1]], &["why"]] {
            let why = host.vgpu(asked).ok().stdout;
            let words: Vec<&str> = why.splitn(4, ' ').collect();
            words[0].parse::<jiff::Timestamp>().expect("a time");
            assert_eq!(words[1..], [&*id, "75", &format!("{line}\n")]);
        }
        assert_says(
            host.vgpu(&["why", "other\n"]),
            65,
            &format!(
                "{}/log tells of no failed hook of container \"other\\n\"; podman's names are not known here, only \
                 ids: `vgpu why | tail -1` shows the last one",
                host.state_dir().display(),
            ),
        );
    }
}

/// While the pool file is wrong, hooks cannot know where `state_dir` is.
#[test]
#[ignore = "needs root: makes device nodes"]
fn why_tells_of_the_time_without_a_pool_file() {
    let host = Host::new(Cgroups::V1);
    let fail = |id: &str| {
        let state = json!({"id": id, "bundle": "/nowhere"}).to_string();
        host.run_hook("createRuntime", &state).exits(65);
    };
    let told = || {
        let why = host.vgpu(&["why"]).ok().stdout;
        why.lines().map(|line| line.split(' ').nth(1).expect("an id").to_owned()).collect::<Vec<_>>()
    };
    let pool = fs::read(host.pool_file()).expect("a pool file");
    fail("a");
    fs::remove_file(host.pool_file()).expect("a pool file");
    fail("b");
    assert_eq!(told(), ["b"]);
    fs::write(host.pool_file(), pool).expect("a pool file");
    fail("c");
    assert_eq!(told(), ["a", "b", "c"]);
}

/// crun shows it where it is asked to.
#[test]
#[ignore = "needs root: starts containers"]
fn crun_shows_the_line_when_asked() {
    let host = Host::new(Cgroups::V1);
    let asking = host.container(Runtime::Crun).annotation("vgpu.count", "9");
    let container = asking.annotation("run.oci.hooks.stderr", "/dev/stderr").build();
    let create = container.runtime().commands(&container, Step::Create).remove(0);
    // Through a pipe: crun opens /dev/stderr anew, and in a file would write over the hook's line.
    let through_pipe = ["sh", "-c", r#""$@" 2>&1 | cat"#, "sh"].map(str::to_owned);
    let output = host.view().run(&[&through_pipe[..], &create].concat());
    assert!(output.stdout.contains("vgpu: no free vGPU: asked for 9"), "{output}");
}

#[test]
#[ignore = "needs root: makes device nodes"]
fn discover_prints_what_the_host_has() {
    let host = host_with_nvml(Cgroups::V1);
    let [first, second] = [0, 1].map(|at| host.gpus[at].uuid.as_str());
    assert_eq!(
        host.vgpu(&["discover"]).ok().stdout,
        format!(
            "driver 550.54.15\n\
             UUID                                      PCI           MINOR  NAME                   MEMORY\n\
             {first}  0000:3b:00.0      1  NVIDIA A100-SXM4-40GB  40GiB\n\
             {second}  0000:86:00.0      0  NVIDIA A100-SXM4-40GB  40GiB\n"
        )
    );
    let gpu = |at: usize| {
        let gpu = &host.gpus[at];
        json!({"uuid": gpu.uuid, "pci": gpu.pci, "minor": gpu.minor, "name": gpu.name, "memory": 40_u64 << 30})
    };
    let json: Value = serde_json::from_str(&host.vgpu(&["discover", "--json"]).ok().stdout).expect("JSON");
    assert_eq!(json, json!({"version": 1, "driver": "550.54.15", "gpus": [gpu(0), gpu(1)], "warnings": []}));

    // A GPU that NVML lost is named; what was found before is not believed any more.
    host.install_nvml(&[&host.gpus[0]]);
    let printed = host.vgpu(&["discover"]).ok().stdout;
    let warning = "warning: GPU 0000:86:00.0 is left out: the driver has it, NVML does not give it; \
                   once it is back, run `vgpu discover`\n";
    assert!(printed.ends_with(warning) && !printed.contains(second), "{printed}");
    assert_eq!(host.status()["gpus"].as_array().expect("GPUs").len(), 1);
}

/// From nothing to a container with a vGPU, as the README tells it.
#[test]
#[ignore = "needs root: starts containers"]
fn the_written_pool_file_is_right_and_works() {
    let host = host_with_nvml(Cgroups::V1);
    let (pool, root) = (host.pool_file(), host.driver_root());
    let root = root.to_str().expect("UTF-8");
    let init = ["config", "init", "--driver-root", root];
    assert_says(host.vgpu(&init), 78, &format!("{pool} is there already; `--force` replaces it"));
    fs::remove_file(&pool).expect("a pool file");
    assert_says(
        host.vgpu(&["status"]),
        78,
        &format!("there is no {pool}; write one with `vgpu --config {pool} config init`"),
    );
    assert_eq!(
        host.vgpu(&init).ok().stdout,
        format!("{pool} is written; look it through, then run `vgpu --config {pool} config check`\n")
    );
    assert_eq!(
        host.vgpu(&["config", "check"]).ok().stdout,
        format!("{pool} is right; GPUs: 2, vGPUs: 8\n  small: 8 of 10GiB and 25%\n")
    );
    let container = asking(&host, Runtime::Runc).args(&probe::argv(&[])).build();
    assert_sees_its_lease(&container, &probe::parse(&container.run().ok().stdout), 1);
}

#[test]
#[ignore = "needs root: makes device nodes"]
fn config_check_says_everything_at_once() {
    let host = host_with_nvml(Cgroups::V1);
    host.write_pool("placement = \"pack\"\n[[type]]\nname = \"a\"\nmemory = \"10\"\ncompute = 0\n");
    let output = host.vgpu(&["config", "check"]).exits(78);
    let pool = host.pool_file();
    assert_eq!(output.stderr, format!("vgpu: {pool} has 3 problems; correct them and check again\n"));
    for part in ["pool.toml:3:1: ", "pool.toml:6:10: ", "pool.toml:7:11: "] {
        assert!(output.stdout.contains(part), "{output}");
    }
}

/// Wherever `--config` stands, for people and for runtimes.
#[test]
#[ignore = "needs root: starts containers"]
fn config_may_stand_anywhere() {
    let host = host_with_one_vgpu(Cgroups::V1);
    let pool = host.pool_file();
    let equals = format!("--config={pool}");
    for arguments in [
        &["--config", &pool, "status", "--json"][..],
        &["status", "--config", &pool, "--json"],
        &["status", "--json", &equals],
    ] {
        let output = host.view().run(&[&[VGPU], arguments].concat()).ok();
        assert!(output.stdout.contains(&host.gpus[0].uuid), "{output}");
    }
    for arguments in [
        &["hook", "createRuntime", "--config", &pool][..],
        &["hook", "--config", &pool, "createRuntime"],
        &[&equals, "hook", "prestart"],
    ] {
        let plain = host.container(Runtime::Runc).annotation("vgpu.count", "1").no_hooks();
        let container = up(plain.hook("createRuntime", &[&[VGPU], arguments].concat()));
        assert_eq!(holders(&host), [container.id()], "{arguments:?}");
        die(&container);
    }
}

/// Each exit code, as a container's hook ends, with its line: what, where, what to do.
#[test]
#[ignore = "needs root: starts containers"]
fn each_exit_code_has_its_line() {
    let host = host_with_one_vgpu(Cgroups::V1);
    let (pool, root, state) = (host.pool_file(), host.driver_root(), host.state_dir());
    let root = root.display();
    let refused = |exit: i32, line: &str| {
        let said = assert_refused(&asking(&host, Runtime::Runc).build(), exit);
        assert_eq!(said, format!("vgpu: {line}\n"));
    };

    let wrong_stage = [VGPU, "--config", &pool, "hook", "create\u{1b}Runtime"];
    let container =
        asking(&host, Runtime::Runc).no_hooks().hook("createRuntime", &wrong_stage).recorded().build();
    assert_eq!(
        assert_refused(&container, 64),
        "vgpu: there is nothing to do at hook stage \"create\\u{1b}Runtime\"; use createRuntime and poststop\n"
    );
    let why = host.vgpu(&["why", container.id()]).ok().stdout;
    assert!(why.contains(" 64 there is nothing to do at hook stage"), "{why}");

    let odd = asking(&host, Runtime::Runc).annotation("vgpu.count", "2\n\u{1b}[31m").build();
    assert_eq!(
        assert_refused(&odd, 65),
        "vgpu: the container's annotation vgpu.count is \"2\\n\\u{1b}[31m\"; \
         a count is a whole number above 0, without sign or spaces\n"
    );

    let holder = up(asking(&host, Runtime::Runc));
    let none = "no free vGPU: asked for 1 of type whole; free: 0 whole; held by ";
    refused(75, &format!("{none}{} (1); see `vgpu status`, or stop one of them", holder.id()));
    holder.down().ok();

    let version = host.driver_root().join("proc/driver/nvidia/version");
    let kept = fs::read(&version).expect("a version");
    fs::remove_file(&version).expect("a version");
    refused(
        69,
        &format!(
            "no NVIDIA driver is loaded: there is no {root}/proc/driver/nvidia/version \
             (load it with `modprobe nvidia`, or say where its root is: driver_root in pool.toml, --driver-root of config init)"
        ),
    );
    fs::write(&version, kept).expect("a version");

    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("boot_id");
    let leases = state.join(format!("state-{}.json", boot.trim_end()));
    let kept = fs::read(&leases).expect("a state file");
    fs::write(&leases, "{").expect("a state file");
    refused(
        74,
        &format!(
            "{} is damaged: EOF while parsing an object at line 1 column 1; \
             stop the containers that have a GPU, then remove it",
            leases.display()
        ),
    );
    fs::write(&leases, kept).expect("a state file");

    fs::set_permissions(&pool, fs::Permissions::from_mode(0o664)).expect("chmod");
    refused(
        77,
        &format!(
            "{pool} is not trusted: others than root may write it (mode 0664); look through it, then `chmod go-w {pool}`"
        ),
    );
    fs::set_permissions(&pool, fs::Permissions::from_mode(0o644)).expect("chmod");

    host.write_pool("memory = \"10GiB\"\n");
    refused(
        78,
        &format!(
            "{pool}:3:1: unknown key \"memory\"; the keys here are state_dir, driver_root, debug, request, driver, policy, type, gpu"
        ),
    );
    host.write_pool(&one_vgpu(&host.gpus[0]));
    assert_free(&host, Runtime::Runc);
}

/// A descriptor that is closed must not become that of the next file that is opened.
#[test]
#[ignore = "needs root: strace, which is installed for root's tests"]
fn closed_standard_descriptors_lead_nowhere() {
    let log = tempfile::NamedTempFile::new().expect("a file");
    let script = "exec 0<&- 2>&-; exec \"$0\" --version";
    let mut strace = Command::new("strace");
    strace.args(["-e", "trace=open,openat", "-o"]).arg(log.path()).args(["sh", "-c", script, VGPU]);
    assert!(strace.status().expect("strace").success());
    let calls = std::fs::read_to_string(log.path()).expect("the log");
    for number in [0, 2] {
        let is_opened =
            |call: &str| call.contains("\"/dev/null\", O_RDWR") && call.ends_with(&format!(" = {number}"));
        assert!(calls.lines().any(is_opened), "{calls}");
    }
}

/// A command line that the parser refuses is one line, too, and kept where it is a hook's.
#[test]
#[ignore = "needs root: starts containers"]
fn a_wrong_command_line_is_one_line() {
    let host = host_with_one_vgpu(Cgroups::V1);
    let similar = "a similar subcommand exists: 'status'";
    let line = format!("unrecognized subcommand 'stauts'; {similar}; see `vgpu --help`");
    assert_says(host.vgpu(&["stauts"]), 64, &line);
    let argv = [VGPU, "hook", "createRuntime", "--conifg", "x"];
    let asking = host.container(Runtime::Crun).annotation("vgpu.count", "1").no_hooks();
    let container = asking.hook("createRuntime", &argv).recorded().build();
    let line =
        "unexpected argument '--conifg' found; a similar argument exists: '--config'; see `vgpu --help`";
    assert_eq!(assert_refused(&container, 64), format!("vgpu: {line}\n"));
    // What pool file was meant cannot be told, so the log is in the usual place.
    let why = host.view().run(&[VGPU, "why"]).ok().stdout;
    assert!(why.ends_with(&format!(" - 64 {line}\n")), "{why}");
}

/// What the hook of a rootless engine says. There the pool file does not look like root's, which is not its fault.
#[test]
#[ignore = "needs root: gives up its rights"]
fn rootless_is_refused() {
    let host = host_with_one_vgpu(Cgroups::V1);
    let container = asking(&host, Runtime::Runc).build();
    let state =
        json!({"ociVersion": "1.0.2", "id": container.id(), "pid": 1, "bundle": container.dir()}).to_string();
    let (vgpu, pool) = (host.dir().join("vgpu"), host.pool_file());
    let vgpu = vgpu.to_str().expect("UTF-8");
    host.view().run(&["cp", VGPU, vgpu]).ok();
    let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let user_namespace = ["unshare", "--user", "--map-root-user"];
    let line =
        "rootless containers cannot have vGPUs yet; start the container with an engine that runs as root";
    for engine in [&[&nobody[..], &user_namespace].concat(), &user_namespace[..], &nobody] {
        let hook = |stage| {
            let command = [engine, &[vgpu, "--config", &pool, "hook", stage]].concat();
            host.view().start(&command, state.as_bytes()).wait()
        };
        assert_says(hook("createRuntime"), 65, line);
        hook("poststop").ok();
    }
    assert_eq!(holders(&host), [""; 0]);
}

#[test]
#[ignore = "needs root: starts containers"]
fn syslog_gets_the_line() {
    let host = host_with_one_vgpu(Cgroups::V1);
    let path = host.dir().join("syslog");
    let syslog = UnixDatagram::bind(&path).expect("a socket");
    syslog.set_read_timeout(Some(DEADLINE)).expect("a deadline");
    let with_log = format!("mount -t tmpfs none /dev && ln -s {} /dev/log && exec \"$@\"", path.display());
    let unshare = program("unshare");
    let under = [unshare.to_str().expect("UTF-8"), "--mount", "/bin/sh", "-c", &with_log, "sh"];
    let container = asking(&host, Runtime::Runc).annotation("vgpu.count", "0").hooks_under(&under).build();
    let said = assert_refused(&container, 65);
    let mut datagram = [0; 4096];
    let n = syslog.recv(&mut datagram).expect("a datagram");
    let text = std::str::from_utf8(&datagram[..n]).expect("UTF-8");
    // Facility daemon, severity error.
    let pid = text.strip_prefix("<27>vgpu[").and_then(|rest| rest.split_once(']')).expect(text).0;
    pid.parse::<u32>().expect("a pid");
    let line = said.strip_prefix("vgpu: ").expect("a line").trim_end();
    assert_eq!(text, format!("<27>vgpu[{pid}]: {}: {line}", container.id()));
}

/// Two files of 1 MiB are the most that the log takes; `vgpu why` reads both.
#[test]
#[ignore = "needs root: makes device nodes"]
fn the_log_starts_anew_when_it_is_full() {
    let host = Host::new(Cgroups::V1);
    let (log, old) = (host.state_dir().join("log"), host.state_dir().join("log.old"));
    let fail = |id: &str| {
        let state = json!({"id": id, "bundle": "/nowhere"}).to_string();
        let output = host.run_hook("createRuntime", &state).exits(65);
        let line = "cannot read \"/nowhere/config.json\": No such file or directory (os error 2)\n";
        assert_eq!(output.stderr, format!("vgpu: {line}"));
    };
    fail("first");
    let line = fs::read_to_string(&log).expect("a log");
    let filler = line.repeat((1 << 20) / line.len());
    fs::write(&log, &filler).expect("a log");
    fail("second");
    assert!(!log.exists());
    fail("third");
    let [old_text, text] = [&old, &log].map(|path| fs::read_to_string(path).expect("a log"));
    assert!(old_text.starts_with(&filler) && old_text.lines().last().expect("a line").contains(" second "));
    assert_eq!(text.lines().count(), 1);
    assert_eq!(host.vgpu(&["why"]).ok().stdout, old_text + &text);
    fs::write(&log, &filler).expect("a log");
    fail("fourth");
    assert!(!log.exists());
    host.vgpu(&["why", "second"]).exits(65);
    host.vgpu(&["why", "fourth"]).ok();
}

#[test]
#[ignore = "needs root: makes device nodes"]
fn colour_is_for_terminals() {
    let host = Host::new(Cgroups::V1);
    let plain = host.vgpu(&["status"]).ok().stdout;
    assert!(plain.contains("  ready\n") && !plain.contains('\x1b'), "{plain:?}");
    let command = format!("{VGPU} --config {} status", host.pool_file());
    let on_terminal = |variable| {
        let script = ["env", "TERM=xterm", variable, "script", "--quiet", "--return", "--command", &command];
        host.view().run(&[&script[..], &["/dev/null"]].concat()).ok().stdout.replace("\r\n", "\n")
    };
    assert!(on_terminal("A=").contains("  \x1b[32mready\x1b[0m\n"), "{:?}", on_terminal("A="));
    assert_eq!(on_terminal("NO_COLOR=1"), plain);
}

/// `vgpu status | head -1`
#[test]
#[ignore = "needs root: makes device nodes"]
fn a_reader_that_has_seen_enough_is_no_error() {
    let host = Host::new(Cgroups::V1);
    for command in [
        &["status"][..],
        &["status", "--json"],
        &["plan"],
        &["plan", "--json"],
        &["discover"],
        &["reclaim"],
        &["config", "check"],
        &["why"],
    ] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut vgpu = Command::new(VGPU);
        let output = vgpu.args(["--config", &host.pool_file()]).args(command).stdout(writer).output();
        let output = output.expect("vgpu");
        assert_eq!((output.status.code(), &*output.stderr), (Some(0), &b""[..]), "{command:?}");
    }
}

/// Whoever runs containers may look, and change nothing.
#[test]
#[ignore = "needs root: starts containers, gives up its rights"]
fn everybody_may_look() {
    let host = Host::new(Cgroups::V1);
    let container = up(asking(&host, Runtime::Runc));
    assert_refused(&asking(&host, Runtime::Runc).annotation("vgpu.count", "9").build(), 75);
    let (vgpu, pool) = (host.dir().join("vgpu"), host.pool_file());
    let vgpu = vgpu.to_str().expect("UTF-8");
    host.view().run(&["cp", VGPU, vgpu]).ok();
    let as_nobody = |command: &[&str]| {
        let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", vgpu, "--config", &pool];
        host.view().run(&[&nobody[..], command].concat())
    };
    for command in [&["status"][..], &["status", "--json"], &["plan"], &["why"], &["config", "check"]] {
        assert_eq!(as_nobody(command).ok().stdout, host.vgpu(command).ok().stdout);
    }
    let lock = host.state_dir().join("lock");
    let denied = format!("cannot open {}: Permission denied (os error 13); run this as root", lock.display());
    assert_says(as_nobody(&["reclaim"]), 74, &denied);
    assert_says(as_nobody(&["release", container.id()]), 74, &denied);
    let forced = as_nobody(&["release", "--force", container.id()]).exits(74);
    assert!(forced.stderr.contains("Permission denied"), "{forced}");
    assert_eq!(holders(&host), [container.id()]);
}

/// Every command, option and argument says what it is for.
#[test]
fn help_documents_everything() {
    let mut seen = Vec::new();
    help(&[], &mut seen);
    let flags = [
        "--config",
        "--json",
        "--force",
        "--dry-run",
        "--count",
        "--type",
        "--memory",
        "--capabilities",
        "--bundle",
        "--driver-root",
        "--help",
        "--version",
    ];
    let arguments = ["<CONTAINER>", "[CONTAINER]", "<STAGE>", "[OUTPUT]"];
    let commands =
        ["status", "plan", "release", "reclaim", "discover", "why", "config", "init", "check", "hook"];
    for name in flags.iter().chain(&arguments).chain(&commands) {
        assert!(seen.iter().any(|line| line.contains(name)), "{name}: {seen:#?}");
    }
}

/// The lines of a command's help and of those beneath it, each checked to have a text.
fn help(command: &[&str], seen: &mut Vec<String>) {
    let output = Command::new(VGPU).args(command).arg("--help").output().expect("vgpu");
    assert!(output.status.success() && output.stderr.is_empty());
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let mut commands = false;
    for line in text.lines() {
        commands = if line.ends_with(':') { line == "Commands:" } else { commands };
        let Some(entry) = line.strip_prefix("  ") else { continue };
        let (name, what) = entry.trim_start().split_once("  ").unwrap_or_else(|| panic!("no text: {line:?}"));
        assert!(what.trim().len() > 5, "{line:?}");
        seen.push(name.to_owned());
        if commands {
            help(&[command, &[name]].concat(), seen);
        }
    }
}
