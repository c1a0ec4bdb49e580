//! `vgpu plan` says what the hook then does, word for word where that is a refusal, and does nothing itself.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;

use common::bundle::{bind, mounts};
use common::command::Output;
use common::container::{Builder, Container};
use common::driver;
use common::host::{DRIVER, Gpu, Host};
use common::leases::{asking, assert_refused, host_with_one_vgpu};
use common::mig::whole;
use common::runtime::{Runtime, WITH_BUNDLE};
use common::snapshot::Snapshot;
use common::strace::new_log;
use common::view::Cgroups;
use serde_json::{Value, json};

const VGPU: &str = env!("CARGO_BIN_EXE_vgpu");

/// A host with a whole driver, but for one library that nobody needs.
fn host(cgroups: Cgroups) -> Host {
    let host = Host::builder(cgroups).nvml().build();
    driver::install_all(&host.driver_root(), DRIVER);
    fs::remove_file(host.driver_root().join(driver::LIBRARIES).join(format!("libnvidia-nscq.so.{DRIVER}")))
        .expect("removing");
    host
}

fn of_bundle(container: &Container, more: &[&str]) -> Output {
    container.host().vgpu(&[&["plan", "--bundle", container.dir_str()], more].concat())
}

fn parsed(output: Output) -> Value {
    serde_json::from_str(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output}"))
}

fn list<'v>(of: &'v Value, key: &str) -> &'v [Value] {
    of[key].as_array().unwrap_or_else(|| panic!("no {key}: {of}"))
}

fn text<'v>(of: &'v Value, key: &str) -> &'v str {
    of[key].as_str().unwrap_or_else(|| panic!("no {key}: {of}"))
}

/// What a plan says there is: each path of a file or socket with its device and inode, each link with its target.
fn files(plan: &Value) -> BTreeMap<String, String> {
    let mut files = BTreeMap::from([("/usr/local/nvidia/lib".to_owned(), "lib64".to_owned())]);
    for file in list(plan, "files").iter().chain(list(plan, "sockets")) {
        let (path, meta) = (text(file, "path"), fs::metadata(text(file, "source")).expect("a source"));
        files.insert(path.to_owned(), format!("{}:{}", meta.dev(), meta.ino()));
        let (dir, name) = path.rsplit_once('/').expect("a path");
        for link in file["links"].as_array().into_iter().flatten() {
            let link = link.as_str().expect("a path");
            let target = if link.starts_with(dir) { name } else { path };
            files.insert(link.to_owned(), target.to_owned());
        }
    }
    files
}

/// The same as it is in a container.
const LOOK: &str = "all='/usr/local/nvidia /usr/bin /usr/share /etc /run'; find $all -type f -links +0 | while read file; do \
     grep -q \" $file \" /proc/self/mountinfo && stat -c '%n %d:%i' $file; done; \
     find $all -type s -exec stat -c '%n %d:%i' {} + ; \
     find $all -type l | while read link; do echo $link $(readlink $link); done";

/// What a plan or a probe says of nodes.
fn nodes(nodes: &[Value]) -> BTreeMap<String, (u32, u32)> {
    let number = |node: &Value, key| node[key].as_u64().expect("a number") as u32;
    nodes
        .iter()
        .map(|node| (text(node, "path").to_owned(), (number(node, "major"), number(node, "minor"))))
        .collect()
}

/// The nodes in a container's `/dev/dri`.
const GRAPHICS: &str = "for node in /dev/dri/*; do test -c $node && stat -c '%n %t %T' $node; done; true";

/// What its `/proc/driver/nvidia` tells of.
const PROC: &str = "cd /proc/driver/nvidia && find $PWD/gpus -mindepth 1 -maxdepth 1; \
     test ! -e capabilities || find $PWD/capabilities -type f";

fn graphics(looked: &str) -> impl Iterator<Item = (String, (u32, u32))> {
    let hex = |text| u32::from_str_radix(text, 16).expect("a number");
    let words = looked.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    words.map(move |words| (words[0].to_owned(), (hex(words[1]), hex(words[2]))))
}

/// Plans a container and starts it: what was planned is what it then has, nodes with their numbers, vGPUs, files, links,
/// sockets, what `/proc` tells. The plan.
#[track_caller]
fn assert_planned(container: &Container) -> Value {
    let plan = parsed(of_bundle(container, &["--json"]).ok());
    container.up().ok();
    let sees = container.probe(&[]);
    let look = |look| container.exec(&["sh", "-c", look]).ok().stdout;
    let mut has = sees.nodes;
    has.extend(graphics(&look(GRAPHICS)));
    assert_eq!(nodes(list(&plan, "nodes")), has);
    assert!(nodes(list(&plan, "closed")).keys().all(|path| !has.contains_key(path)), "{plan}");

    let lease = sees.lease.expect("a lease");
    let real = |vgpu: &Value| {
        let mut vgpu = vgpu.clone();
        let gpu = container.host().gpus.iter().find(|gpu| gpu.uuid == vgpu["uuid"]).expect("a GPU");
        (vgpu["name"], vgpu["pci"]) = (json!(gpu.name), json!(gpu.pci));
        vgpu
    };
    assert_eq!(list(&plan, "vgpus"), list(&lease, "vgpus").iter().map(real).collect::<Vec<_>>());
    let there = look(LOOK);
    let there = there.lines().map(|line| line.split_once(' ').expect("two words"));
    let there: BTreeMap<_, _> = there.map(|(path, is)| (path.to_owned(), is.to_owned())).collect();
    assert_eq!(files(&plan), there);
    let proc = look(PROC);
    let told: BTreeSet<_> = list(&plan, "proc").iter().map(|path| path.as_str().expect("a path")).collect();
    assert_eq!(told, proc.lines().collect());
    plan
}

#[test]
#[ignore = "needs root: starts containers"]
fn what_is_planned_is_what_is_there() {
    for (cgroups, runtime) in WITH_BUNDLE {
        let host = Host::builder(cgroups).gpus(Gpu::several(3)).nvml().build();
        driver::install_all(&host.driver_root(), DRIVER);
        host.load_graphics();
        // The pool is not as at first.
        asking(&host, runtime).build().up().ok();
        let container =
            asking(&host, runtime).annotation("vgpu.count", "2").annotation("vgpu.memory", "1GiB");
        let container = container.env("NVIDIA_DRIVER_CAPABILITIES", "all").with_driver_in_proc().build();
        let plan = assert_planned(&container);
        // Of the third one.
        assert_eq!(list(&plan, "closed").len(), 3, "{plan}");
        for (file, capabilities) in [
            (format!("lib64/libcuda.so.{DRIVER}"), json!(["compute"])),
            (format!("lib64/libnvcuvid.so.{DRIVER}"), json!(["video"])),
            (format!("lib32/libnvidia-ml.so.{DRIVER}"), json!(["utility", "compat32"])),
            ("bin/nvidia-cuda-mps-control".to_owned(), json!(["compute"])),
            ("share/nvidia_icd.json".to_owned(), json!(["graphics"])),
        ] {
            let path = format!("/usr/local/nvidia/{file}");
            let planned = list(&plan, "files").iter().find(|file| file["path"] == path).expect("a file");
            assert_eq!(planned["capabilities"], capabilities, "{file}");
        }
    }
}

/// A host with MIG devices, two of a type for them.
fn host_with_mig(cgroups: Cgroups) -> Host {
    let pool = "[[type]]\nname = \"mig\"\nmig = \"1g.5gb\"\n[[gpu]]\nproduct = \"*\"\n";
    let host = Host::builder(cgroups).nvml().pool(pool).build();
    host.set_mig(&host.gpus[0], Some(&[whole("1g.5gb", 7), whole("1g.5gb", 9), whole("3g.20gb", 1)]));
    driver::install_all(&host.driver_root(), DRIVER);
    host
}

#[test]
#[ignore = "needs root: starts containers"]
fn mig_devices_are_planned() {
    for (cgroups, runtime) in [(Cgroups::V1, Runtime::Crun), (Cgroups::V2, Runtime::Runc)] {
        let host = host_with_mig(cgroups);
        asking(&host, runtime).build().up().ok();
        let container = asking(&host, runtime).with_driver_in_proc().build();
        let plan = assert_planned(&container);
        let (gpu, device) = (&host.gpus[0], whole("1g.5gb", 9));
        assert_eq!(plan["vgpus"][0]["mig"], json!({ "uuid": device.uuid(gpu), "profile": "1g.5gb" }));
        container.down().ok();
        let printed = of_bundle(&container, &[]).ok().stdout;
        let line = format!(
            "  mig/9.0  4864MiB  1g.5gb  on  {}  NVIDIA A100-SXM4-40GB  {}  {}  {}\n",
            gpu.uuid,
            gpu.pci,
            gpu.node(),
            device.uuid(gpu)
        );
        assert!(printed.contains(&line), "{printed}");
    }
}

/// With CAP_SYS_ADMIN a container has every MIG device of its GPU.
#[test]
#[ignore = "needs root: makes device nodes"]
fn sys_admin_is_named_where_it_is_allowed() {
    let host = host_with_mig(Cgroups::V1);
    let container = asking(&host, Runtime::Runc).tweak(|config| {
        config["process"]["capabilities"]["bounding"] = json!(["CAP_SYS_ADMIN"]);
    });
    let container = container.build();
    let refused = of_bundle(&container, &[]).exits(65);
    assert_eq!(refused.stderr, assert_refused(&container, 65));
    let pool = fs::read_to_string(host.pool_file()).expect("a pool file");
    fs::write(host.pool_file(), format!("policy.allow_other_access = true\n{pool}")).expect("a pool file");
    let what = "it has CAP_SYS_ADMIN, and so all MIG devices of its GPU";
    assert_eq!(parsed(of_bundle(&container, &["--json"]).ok())["other_access"], what);
}

#[test]
#[ignore = "needs root: makes device nodes"]
fn json_has_the_promised_shape() {
    let host = Host::builder(Cgroups::V1).nvml().build();
    fs::remove_file(host.driver_root().join("dev/nvidia-uvm-tools")).expect("removing");
    let gpu = &host.gpus[0];
    let container = asking(&host, Runtime::Runc).env("NVIDIA_DRIVER_CAPABILITIES", "utility").build();
    let root = host.driver_root();
    let library = format!("libnvidia-ml.so.{DRIVER}");
    let vgpu = json!({
        "id": format!("{}/small/0", gpu.uuid), "type": "small", "memory": 10_u64 << 30, "compute": 25,
        "uuid": gpu.uuid, "name": gpu.name, "pci": gpu.pci, "device": gpu.node(),
    });
    let node = |path: &str, major: u32, minor: u32| json!({ "path": path, "major": major, "minor": minor });
    let mut plan = parsed(of_bundle(&container, &["--json"]).ok());
    let missing = plan["missing"].take();
    assert_eq!(
        plan,
        json!({
            "version": 1,
            "warnings": [],
            "request": { "source": "annotations", "count": 1, "type": null, "memory": null },
            "driver": DRIVER,
            "capabilities": ["utility"],
            "vgpus": [vgpu],
            "nodes": [
                node("/dev/nvidiactl", 195, 255),
                node("/dev/nvidia-uvm", host.uvm_major(), 0),
                node(&gpu.node(), 195, gpu.minor),
            ],
            "closed": [node(&host.gpus[1].node(), 195, host.gpus[1].minor)],
            "files": [{
                "path": format!("/usr/local/nvidia/lib64/{library}"),
                "links": ["/usr/local/nvidia/lib64/libnvidia-ml.so.1", "/usr/local/nvidia/lib64/libnvidia-ml.so"],
                "source": root.join(driver::LIBRARIES).join(&library),
                "capabilities": ["utility"],
            }],
            "sockets": [],
            "proc": [format!("/proc/driver/nvidia/gpus/{}", gpu.pci)],
            "missing": null,
            "out_of_reach": [],
        })
    );
    assert_eq!(missing[0], format!("{}/dev/nvidia-uvm-tools is not there", root.display()));
    assert_eq!(missing[1], format!("libnvidia-cfg.so.{DRIVER} is not there"));
}

#[test]
#[ignore = "needs root: makes device nodes"]
fn a_table_for_people() {
    let host = host_with_one_vgpu(Cgroups::V1);
    let root = host.driver_root();
    let (uuid, root, uvm) = (&host.gpus[0].uuid, root.display(), host.uvm_major());
    let printed = host.vgpu(&["plan", "--memory", "8GiB", "--capabilities", "compute"]).ok().stdout;
    let missing = "optional, missing\n";
    let (printed, not_there) = printed.split_once(missing).expect(missing);
    assert_eq!(
        printed,
        format!(
            "asked by command line for 1 vGPU with at least 8GiB\n  \
             whole/0  10GiB  100%  on  {uuid}  NVIDIA A100-SXM4-40GB  0000:3b:00.0  /dev/nvidia0\n\
             device nodes\n  \
             /dev/nvidiactl         195:255\n  \
             /dev/nvidia-uvm        {uvm}:0\n  \
             /dev/nvidia-uvm-tools  {uvm}:1\n  \
             /dev/nvidia0           195:0\n\
             files of driver 550.54.15 for compute\n  \
             /usr/local/nvidia/lib64/libcuda.so.550.54.15  from {root}/usr/lib/x86_64-linux-gnu/libcuda.so.550.54.15  \
             compute  libcuda.so.1 libcuda.so\n"
        )
    );
    assert!(not_there.starts_with("  libcudadebugger.so.550.54.15\n"), "{not_there}");
}

/// A change to a container, or to the host before it is planned.
type Change = Box<dyn Fn(&Host)>;

/// Where a hook refuses, the plan ends as it, with its words.
#[test]
#[ignore = "needs root: starts containers"]
fn a_refusal_is_the_hooks() {
    let remove = |path: &'static str| -> Change {
        Box::new(move |host| fs::remove_file(host.driver_root().join(path)).expect("removing"))
    };
    let nothing = || -> Change { Box::new(|_| {}) };
    let pool = |text: &'static str| -> Change { Box::new(move |host| host.write_pool(text)) };
    let held: Change = Box::new(|host| {
        asking(host, Runtime::Runc).build().up().ok();
    });
    let damaged: Change = Box::new(|host| {
        asking(host, Runtime::Runc).build().up().ok();
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("boot_id");
        fs::write(host.state_dir().join(format!("state-{}.json", boot.trim_end())), "{").expect("a state");
    });
    let readable: Change = Box::new(|host| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o666);
        fs::set_permissions(host.pool_file(), mode).expect("chmod");
    });
    let no_pool: Change = Box::new(|host| fs::remove_file(host.pool_file()).expect("removing"));
    let library: Change = Box::new(|host| {
        let library = format!("libcuda.so.{DRIVER}");
        fs::remove_file(host.driver_root().join(driver::LIBRARIES).join(library)).expect("removing");
    });
    type Ask = fn(Builder) -> Builder;
    let same: Ask = |builder| builder;
    let cases: Vec<(i32, &str, Change, Ask)> = vec![
        (65, "vgpu.count is \"0\"", nothing(), |builder| builder.annotation("vgpu.count", "0")),
        (65, "unknown annotation \"vgpu.cuont\"", nothing(), |builder| builder.annotation("vgpu.cuont", "1")),
        (65, "cut into type \"other\"", nothing(), |builder| builder.annotation("vgpu.type", "other")),
        (65, "the word \"cuda\"", nothing(), |builder| builder.env("NVIDIA_DRIVER_CAPABILITIES", "cuda")),
        (65, "its device rules allow 195:0", nothing(), |builder| {
            builder.tweak(|config| {
                config["linux"]["resources"]["devices"] = json!([{ "allow": true, "access": "rwm" }])
            })
        }),
        (69, "no NVIDIA driver is loaded", remove("proc/driver/nvidia/version"), same),
        (69, "nvidia-uvm", remove("dev/nvidia-uvm"), same),
        (69, "capability compute needs libcuda", library, same),
        (74, "is damaged", damaged, same),
        (75, "no free vGPU: asked for 2", nothing(), |builder| builder.annotation("vgpu.count", "2")),
        (75, "no free vGPU: asked for 1 of type whole; free: 0 whole; held by", held, same),
        (75, "unusable", remove("dev/nvidia0"), same),
        (77, "is not trusted", readable, same),
        (78, "there is no ", no_pool, same),
        (78, "unknown key", pool("a = 1\n"), same),
    ];
    for (exit, says, change, ask) in cases {
        let host = host_with_one_vgpu(Cgroups::V1);
        change(&host);
        let container = ask(asking(&host, Runtime::Runc)).build();
        let planned = of_bundle(&container, &[]).exits(exit);
        assert!(planned.stdout.is_empty() && planned.stderr.contains(says), "{planned}");
        assert_eq!(planned.stderr, assert_refused(&container, exit));
    }
}

/// A vGPU whose holder is gone is planned with, as it would be given.
#[test]
#[ignore = "needs root: starts containers"]
fn what_the_dead_hold_is_free() {
    let host = host_with_one_vgpu(Cgroups::V2);
    let holder = asking(&host, Runtime::Runc).without_hooks_of("poststop").build();
    holder.up().ok();
    let state = || Snapshot::of(&host.state_dir());
    let before = state();
    host.vgpu(&["plan"]).exits(75);
    holder.delete_force().ok();
    assert!(host.vgpu(&["plan"]).ok().stdout.contains("whole/0"));
    state().assert_is(&before, "the state");
}

#[test]
#[ignore = "needs root: makes device nodes"]
fn a_bundle_that_asks_for_nothing_or_is_none() {
    let host = host_with_one_vgpu(Cgroups::V1);
    let none = host.container(Runtime::Runc).build();
    assert_eq!(
        of_bundle(&none, &[]).ok().stdout,
        "the container asks for no vGPU: a hook leaves it as it is\n"
    );
    let expected = json!({ "version": 1, "request": null, "reason": "the container asks for no vGPU" });
    assert_eq!(parsed(of_bundle(&none, &["--json"]).ok()), expected);

    let by_env = host.container(Runtime::Runc).env("VGPU_COUNT", "1").build();
    assert_eq!(parsed(of_bundle(&by_env, &["--json"]).ok())["request"]["source"], "environment");
    let pool = fs::read_to_string(host.pool_file()).expect("a pool file");
    fs::write(host.pool_file(), format!("request.allow_env = false\n{pool}")).expect("a pool file");
    assert_eq!(
        of_bundle(&by_env, &[]).ok().stdout,
        "the container asks by environment alone, and pool.toml says allow_env = false: a hook leaves it as it is\n"
    );

    // What is no bundle is said in the hook's words, too.
    fs::create_dir(host.dir().join("empty")).expect("a directory");
    for dir in [host.dir().join("empty"), host.dir().join("nowhere"), none.root().join("etc/passwd")] {
        let dir = dir.to_str().expect("UTF-8");
        let state = json!({ "id": "none", "bundle": dir }).to_string();
        let hook = host.run_hook("createRuntime", &state).exits(65);
        assert_eq!(host.vgpu(&["plan", "--bundle", dir]).exits(65).stderr, hook.stderr);
    }
    fs::write(host.dir().join("empty/config.json"), "{").expect("a file");
    let dir = host.dir().join("empty");
    let planned = host.view().run(&[
        "sh",
        "-c",
        "cd $0 && exec $1 --config $2 plan --bundle .",
        dir.to_str().expect("UTF-8"),
        VGPU,
        &host.pool_file(),
    ]);
    let state = json!({ "id": "none", "bundle": dir }).to_string();
    assert_eq!(planned.exits(65).stderr, host.run_hook("createRuntime", &state).exits(65).stderr);
}

#[test]
#[ignore = "needs root: makes device nodes"]
fn other_ways_to_a_gpu_are_named_where_they_are_allowed() {
    let host = host_with_one_vgpu(Cgroups::V1);
    let pool = fs::read_to_string(host.pool_file()).expect("a pool file");
    fs::write(host.pool_file(), format!("policy.allow_other_access = true\n{pool}")).expect("a pool file");
    let all = json!([{ "allow": true, "access": "rwm" }]);
    let container =
        asking(&host, Runtime::Runc).tweak(|config| config["linux"]["resources"]["devices"] = all);
    let container = container.build();
    let what = "its device rules allow 195:0";
    assert_eq!(parsed(of_bundle(&container, &["--json"]).ok())["other_access"], what);
    let printed = of_bundle(&container, &[]).ok().stdout;
    assert!(
        printed.ends_with(&format!("\nother GPUs, too, since allow_other_access = true: {what}\n")),
        "{printed}"
    );
}

/// What a config.json says against its plan: without hooks nobody calls vgpu, and a mount of the host's is in the way.
#[test]
#[ignore = "needs root: starts containers"]
fn a_bundle_that_would_get_nothing_is_warned_of() {
    let host = host(Cgroups::V1);
    let hookless = asking(&host, Runtime::Runc).no_hooks().build();
    let line = "no createRuntime hook in its config.json runs vgpu, so that it would start without any of this; \
        add the hooks of /usr/share/vgpu/hooks.json";
    let printed = of_bundle(&hookless, &[]).ok().stdout;
    assert!(printed.starts_with(&format!("warning: {line}\nasked by annotations ")), "{printed}");
    assert_eq!(parsed(of_bundle(&hookless, &["--json"]).ok())["warnings"], json!([line]));
    let bound = |at: &'static str| {
        let source = host.dir().join("bound");
        fs::create_dir_all(&source).expect("a directory");
        let source = source.to_str().expect("UTF-8").to_owned();
        asking(&host, Runtime::Runc).tweak(move |config| bind(config, &source, at, &[])).build()
    };
    for at in ["/usr/local", "/usr/local/nvidia"] {
        let container = bound(at);
        let line = format!(
            "the mount at \"{at}\" in its config.json is in the way of /usr/local/nvidia, so that it would be refused; \
             leave it out"
        );
        assert_eq!(parsed(of_bundle(&container, &["--json"]).ok())["warnings"], json!([line]));
        assert_refused(&container, 65);
    }
    let tmpfs = json!({ "type": "tmpfs", "source": "tmpfs", "destination": "/usr/local" });
    let own = asking(&host, Runtime::Runc).tweak(|config| mounts(config).push(tmpfs)).build();
    for container in [bound("/usr/share/data"), own] {
        assert_eq!(parsed(of_bundle(&container, &["--json"]).ok())["warnings"], json!([]));
        container.up().ok();
    }
}

#[test]
#[ignore = "needs root: makes device nodes"]
fn a_wrong_command_line_is_one_line() {
    let host = Host::new(Cgroups::V1);
    for (args, says) in [
        (&["--count", "0"][..], "invalid value '0' for '--count <N>': a count is a whole number above 0"),
        (
            &["--memory", "8"],
            "invalid value '8' for '--memory <MEMORY>': memory is a whole number above 0 and one of",
        ),
        (&["--bundle", "/", "--count", "1"], "'--bundle <DIR>' cannot be used with '--count <N>'"),
    ] {
        let output = host.vgpu(&[&["plan"], args].concat()).exits(64);
        assert!(output.stderr.contains(says) && output.stderr.lines().count() == 1, "{output}");
    }
    host.vgpu(&["plan", "--type", "large"]).exits(65);
    host.vgpu(&["plan", "--capabilities", "cuda"]).exits(65);
}

/// Nothing of the host is written, made, locked or changed, whatever there was before: no state directory, an
/// empty one, one with leases and inventory; nor in the container's bundle.
#[test]
#[ignore = "needs root: starts containers"]
fn nothing_is_touched() {
    let host = host(Cgroups::V1);
    let container = asking(&host, Runtime::Runc).build();
    let look = || {
        let dirs = [host.state_dir(), host.driver_root(), host.dir().join("containers")];
        dirs.map(|dir| dir.exists().then(|| Snapshot::of(&dir)))
    };
    let assert_untouched = |what: &str| {
        let before = look();
        for args in [&["--json"][..], &["--bundle", container.dir_str()], &["--count", "99"]] {
            host.vgpu(&[&["plan"], args].concat());
        }
        let after = look();
        for (after, before) in after.iter().zip(&before) {
            assert_eq!(after.is_some(), before.is_some(), "{what}");
            after.iter().zip(before).for_each(|(after, before)| after.assert_is(before, what));
        }
        assert_eq!(writes(&host, &["plan", "--bundle", container.dir_str()]), [""; 0], "{what}");
    };
    fs::remove_dir(host.state_dir()).expect("removing");
    assert_untouched("no state directory");
    fs::create_dir(host.state_dir()).expect("a directory");
    assert_untouched("an empty state directory");
    asking(&host, Runtime::Runc).build().up().ok();
    asking(&host, Runtime::Runc).annotation("vgpu.count", "99").build().up().fails();
    assert_untouched("leases, inventory and log");
    // With an inventory that is stale.
    host.upgrade_driver("560.35.03");
    assert_untouched("another driver");
}

/// The system calls of `vgpu ARGS`, and of the process that asks NVML, that write to a file, make, lock, mount or remove
/// one. That process has the null device for what it would print.
fn writes(host: &Host, args: &[&str]) -> Vec<String> {
    let (log, pool) = (new_log(host), host.pool_file());
    let strace = ["strace", "-f", "-qq", "-o", log.to_str().expect("UTF-8"), VGPU, "--config", &pool];
    host.view().run(&[&strace, args].concat()).ok();
    let log = fs::read_to_string(log).expect("strace's log");
    assert!(log.contains("openat2("), "{log}");
    let making = [
        "mkdir", "mknod", "rename", "unlink", "rmdir", "symlink", "truncate", "flock", "chmod", "chown",
        "utime", "mount", "setns", "setxattr", "bpf",
    ];
    let is_write = |line: &&str| {
        let call = line.split_once(' ').map_or(*line, |(_, call)| call.trim_start());
        let name = call.split_once('(').map_or("", |(name, _)| name);
        let makes = name == "link" || name == "linkat" || making.iter().any(|one| name.contains(one));
        let opens = ["O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC"].iter().any(|flag| call.contains(flag));
        makes || (opens && !call.contains("\"/dev/null\""))
    };
    log.lines().filter(is_write).map(str::to_owned).collect()
}
