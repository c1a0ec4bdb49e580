//! Types with `isolation = "remote"` (row A8): a container has a worker's socket and the client's libraries in place of
//! GPUs, and the worker is there exactly as long as the lease.

mod common;
#[path = "../crates/client/tests/common/programs.rs"]
mod programs;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use common::client;
use common::container::{Builder, Container};
use common::host::{Host, MAJOR, make_dir, make_node};
use common::image::furnish;
use common::leases::{assert_refused, holders};
use common::library::{Machine, shared_object};
use common::parked::Lot;
use common::probe::Opened;
use common::runtime::Runtime;
use common::seed::{Seed, say};
use common::sees;
use common::strace::{self, Fault};
use common::view::Cgroups;
use common::wait::Process;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::Value;

/// Where the image has its libraries.
const DEBIAN: &str = "usr/lib/x86_64-linux-gnu";

const PRELOAD: &str = "etc/ld.so.preload";

/// A host whose GPUs are cut into two of 64 MiB for workers, and one that is a GPU's share.
fn host(cgroups: Cgroups) -> Host {
    client::ready();
    let pool = "[[type]]\nname = \"far\"\nmemory = \"64MiB\"\ncompute = 25\nisolation = \"remote\"\n\
        [[type]]\nname = \"near\"\nmemory = \"1GiB\"\ncompute = 50\n\
        [[gpu]]\nproduct = \"*\"\nvgpus = { far = 2, near = 1 }\n";
    Host::builder(cgroups).pool(pool).build()
}

/// A container of a distribution's image that asks for one.
fn far(host: &Host, runtime: Runtime) -> Builder<'_> {
    let image = host.container(runtime).furnish(|root| furnish(host, root, DEBIAN));
    image.annotation("vgpu.type", "far").recorded()
}

/// The one worker of a container.
#[track_caller]
fn worker(container: &Container) -> u32 {
    let id = container.oci_id();
    let workers = client::workers(&id);
    assert_eq!(workers.len(), 1, "{workers:?}");
    workers[0]
}

/// What `vgpu status` says of it.
fn status(host: &Host) -> Value {
    host.status()["leases"][0]["worker"].clone()
}

/// The names of the sockets in the state directory.
fn sockets(host: &Host) -> Vec<String> {
    let Ok(entries) = fs::read_dir(host.state_dir().join("workers")) else { return Vec::new() };
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

on_every_runtime! {
    /// From the first process of the container to its last.
    fn a_container_has_a_worker_and_no_gpu(cgroups, runtime) {
        let host = host(cgroups);
        for mapped in [false, true] {
            // Nodes of the driver's that the image brings where nobody looks for them.
            let control = [("opt/ctl", MAJOR, 255), ("opt/uvm", host.uvm_major(), 0)];
            let smuggled = sees::smuggled(far(&host, runtime)).furnish(|root| {
                control.iter().for_each(|(path, major, minor)| make_node(&root.join(path), *major, *minor));
            });
            let container = smuggled.mapped_if(mapped).build();
            let up = container.up();
            assert_eq!(up.code, Some(0), "{up} {}", container.hook_stderr("createRuntime"));
            let process = Process::of(worker(&container));
            let seen = container.probe(&[&sees::PATHS[..], &["/opt/ctl", "/opt/uvm"]].concat());
            assert!(seen.nodes.is_empty() && seen.opened.values().all(|opened| *opened != Opened::Allowed), "{seen:?}");
            let vgpu = &seen.lease.expect("a lease")["vgpus"][0];
            assert_eq!((&vgpu["isolation"], &vgpu["device"]), (&"remote".into(), &Value::Null));
            container.exec(&["sh", "-c", "test -S /dev/vgpu/worker && test -w /dev/vgpu/worker"]).ok();
            // Of no NVIDIA library, and of no GPU, is there a trace.
            let names = container.exec(&["ls", "/usr/local/nvidia/lib64"]).ok().stdout;
            assert!(names.lines().all(|name| !name.contains("nvidia") && name.contains(".so")), "{names}");
            container.exec(&["sh", "-c", "! ls /proc/driver/nvidia/gpus/*"]).ok();
            // Each is found by name, by this host's loader and by way of `dlopen` alike.
            let found = container.exec(&[&["look"], &client::LIBRARIES[1..]].concat()).ok().stdout;
            let expected = client::LIBRARIES[1..].iter().map(|name| format!("{name} /usr/local/nvidia/lib64/{name}\n"));
            assert_eq!(found, expected.collect::<String>());

            let says = status(&host);
            assert_eq!((&says["backend"], &says["memory"]["limit"]), (&"cpu".into(), &(64 << 20).into()), "{says}");
            assert_eq!(sockets(&host).len(), 1);
            container.down().ok();
            process.ended();
            assert_eq!(sockets(&host), [""; 0]);
            assert_eq!(fs::read(host.view().path(container.root()).join(PRELOAD)).unwrap_or_default(), b"");
        }
    }
}

/// An ordinary program, linked against public names alone, trains in the container; whatever becomes of its descriptor
/// calls, to the same weights.
#[test]
#[ignore = "needs root: starts containers"]
fn a_program_trains_in_a_container() {
    for (cgroups, runtime) in [(Cgroups::V1, Runtime::Runc), (Cgroups::V2, Runtime::Crun)] {
        let host = host(cgroups);
        let container = far(&host, runtime).furnish(|root| {
            let source = concat!(env!("CARGO_MANIFEST_DIR"), "/crates/client/tests/lenet.c");
            let program = root.join("bin/lenet");
            let libraries = ["libcudnn.so.9", "libcublas.so.12", "libcudart.so.12"];
            let libraries = libraries.map(|name| client::directory().join(name).to_str().unwrap().to_owned());
            let [dnn, blas, runtime] = libraries.each_ref().map(String::as_str);
            let gcc =
                ["gcc", "-std=c11", "-o", program.to_str().unwrap(), source, dnn, blas, runtime, "-ldl"];
            host.view().run(&[&gcc[..], &["-Wl,--allow-shlib-undefined"]].concat()).ok();
        });
        let container = container.mapped_if(cgroups == Cgroups::V2).build();
        container.up().ok();
        let trained = |mode: &str| {
            let mode = format!("VGPU_REUSE={mode}");
            let output = container.exec(&["env", &mode, "/bin/lenet"]).ok();
            assert!(!output.stderr.contains("vgpu"), "{}", output.stderr);
            output.stdout
        };
        let weights = trained("");
        let right: f64 = weights.split_whitespace().last().unwrap().parse().unwrap();
        assert!(right > 95.0, "{weights}");
        assert_eq!(trained("off"), weights);
        let says = status(&host);
        assert!(says["counters"]["predicted"].as_u64() > says["counters"]["known"].as_u64(), "{says}");
        assert_eq!(says["unserved"]["functions"], serde_json::json!({}));
        container.down().ok();
    }
}

/// So do public programs: a net of the crate `juice`; and the tests of cuDNN and cuBLAS of the crate `cudarc`, but for two
/// long ones.
#[test]
#[ignore = "needs root: starts containers"]
fn public_programs_run_in_a_container() {
    let libraries = programs::linkable();
    let built = [&["test", "-p", "cudarc", "--lib", "--no-run"][..], &["build", "--example", "digits"]];
    let [cudarc, digits] = built.map(|arguments| programs::made(arguments, &libraries));
    client::ready();
    let pool = "[[type]]\nname = \"far\"\nmemory = \"4GiB\"\ncompute = 25\nisolation = \"remote\"\n\
        [[gpu]]\nproduct = \"*\"\nvgpus = { far = 1 }\n";
    let host = Host::builder(Cgroups::V2).pool(pool).build();
    let container = far(&host, Runtime::Runc).furnish(|root| {
        let copy = |from: &Path, to: &str| assert!(fs::copy(from, root.join(to)).unwrap() > 0);
        copy(&cudarc, "bin/cudarc");
        copy(&digits, "bin/digits");
        for name in ["libgcc_s.so.1", "libm.so.6"] {
            copy(&Path::new("/lib/x86_64-linux-gnu").join(name), &format!("{DEBIAN}/{name}"));
        }
    });
    let container = container.build();
    container.up().ok();
    let digits = container.exec(&["digits"]).ok();
    let learned: Vec<f64> =
        digits.stdout.split_whitespace().take(3).map(|word| word.parse().unwrap()).collect();
    assert!(learned[1] < learned[0] / 5.0 && learned[2] > 90.0, "{digits}");
    let left_out = ["test_conv3d", "test_conv_bias_activation", "grouped_gemm"];
    let skipped = left_out.map(|name| ["--skip", name]);
    let tests = [&["cudarc", "cublas::", "cudnn::", "--test-threads", "1"], &skipped.concat()[..]].concat();
    let passed = container.exec(&tests).ok().stdout;
    assert!(passed.contains("test result: ok. 15 passed; 0 failed;"), "{passed}");
    assert_eq!(status(&host)["unserved"]["functions"], serde_json::json!({}));
    container.down().ok();
}

/// It is not the hook's, nor its engine's: not in its session, its cgroups, its standard streams; and it is nobody.
#[test]
#[ignore = "needs root: starts containers"]
fn a_worker_is_detached_and_has_no_rights() {
    for (cgroups, runtime) in [(Cgroups::V1, Runtime::Runc), (Cgroups::V2, Runtime::Crun)] {
        let host = host(cgroups);
        let container = far(&host, runtime).env("SECRET", "1").build();
        container.up().ok();
        let pid = worker(&container);
        let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap();
        let field = |name: &str| {
            let status = read("status");
            let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a field").trim();
            line.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            (field("Uid:"), field("Gid:")),
            ("65534 65534 65534 65534".into(), "65534 65534 65534 65534".into())
        );
        assert_eq!((field("Groups:"), field("NoNewPrivs:")), (String::new(), "1".into()));
        for caps in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
            assert_eq!(field(caps), "0000000000000000", "{caps}");
        }
        let stat = read("stat");
        let session = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(3).unwrap();
        assert_eq!(session, pid.to_string());
        let of = |hierarchy: &str| {
            let of_it = |line: &&str| line.split(':').nth(1) == Some(hierarchy);
            read("cgroup").lines().find(of_it).map(|line| line.rsplit(':').next().unwrap().to_owned())
        };
        let cgroup = of(if cgroups == Cgroups::V2 { "" } else { "memory" }).unwrap();
        assert!(cgroup.starts_with("/vgpu/"), "{cgroup}");
        // Its type's memory for the device, as much for memory of programs that it shares, and some for itself.
        let (root, file) = match cgroups {
            Cgroups::V2 => ("/sys/fs/cgroup", "memory.max"),
            _ => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        };
        let cgroup = host.view().path(Path::new(root)).join(&cgroup[1..]);
        if let Ok(limit) = fs::read_to_string(cgroup.join(file)) {
            assert_eq!(limit.trim(), (2 * (64 << 20) + (256 << 20)).to_string());
        } else {
            assert_eq!(cgroups, Cgroups::V2, "a host of v2 without the controller");
        }
        assert_eq!(read("environ"), "");
        let fds = fs::read_dir(format!("/proc/{pid}/fd"))
            .unwrap()
            .map(|fd| fs::read_link(fd.unwrap().path()).unwrap());
        let fds: Vec<String> = fds.map(|to| to.display().to_string()).collect();
        let of_host = host.state_dir().join("log").display().to_string();
        let known = |fd: &&String| {
            fd.starts_with("/dev/null")
                || fd.starts_with("socket:")
                || fd.starts_with("anon_inode:")
                || fd.starts_with("pipe:")
                || fd.starts_with("/sys/fs/cgroup")
                || **fd == of_host
        };
        assert_eq!(fds.iter().filter(|fd| !known(fd)).collect::<Vec<_>>(), [""; 0], "{fds:?}");
        assert_eq!(read("comm"), "vgpu-worker\n");
        container.delete_force().ok();
        assert!(!cgroup.exists());
    }
}

/// The image's own lines stay, before ours, and the file is as it was when the container is gone.
#[test]
#[ignore = "needs root: starts containers"]
fn an_images_own_preload_file_counts() {
    let host = host(Cgroups::V1);
    let ours = client::LIBRARIES[1..]
        .iter()
        .map(|name| format!("/usr/local/nvidia/lib64/{name}\n"))
        .collect::<String>();
    for overlay in [false, true] {
        for (theirs, kept) in [("", ""), ("/libown.so", "/libown.so\n"), ("/libown.so\n", "/libown.so\n")] {
            let container =
                far(&host, Runtime::Runc).furnish(|root| fs::write(root.join(PRELOAD), theirs).unwrap());
            let container = if overlay { container.overlay() } else { container }.build();
            container.up().ok();
            assert_eq!(container.exec(&["cat", &format!("/{PRELOAD}")]).ok().stdout, format!("{kept}{ours}"));
            container.down().ok();
            assert_eq!(fs::read_to_string(host.view().path(container.root()).join(PRELOAD)).unwrap(), theirs);
        }
    }
}

/// What must not be preloaded is not: it would keep each program of the container from starting.
#[test]
#[ignore = "needs root: starts containers"]
fn an_image_that_could_not_load_the_client() {
    let host = host(Cgroups::V1);
    let old = far(&host, Runtime::Runc).furnish(|root| {
        let libc = shared_object(Machine::X86_64, b"libc.so.6");
        fs::write(root.join(DEBIAN).join("libc.so.6"), libc).unwrap();
    });
    let said = assert_refused(&old.build(), 65);
    assert!(said.contains("the image's C library has no GLIBC_2."), "{said}");
    let odd = far(&host, Runtime::Runc).furnish(|root| make_dir(&root.join(PRELOAD))).build();
    let said = assert_refused(&odd, 65);
    assert!(said.contains("the container's /etc/ld.so.preload is no regular file"), "{said}");
    assert_eq!((client::workers(odd.id()), sockets(&host).len()), (vec![], 0));
    // Nobody waits for a FIFO, and what a link leads to on the host is not read.
    let outside = host.dir().join("outside");
    fs::write(&outside, "libsecret.so\n").unwrap();
    let fifo = |root: &Path| {
        mknodat(CWD, root.join(PRELOAD), FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
    };
    let link = |root: &Path| std::os::unix::fs::symlink(&outside, root.join(PRELOAD)).unwrap();
    for make in [&fifo as &dyn Fn(&Path), &link] {
        let said = assert_refused(&far(&host, Runtime::Runc).furnish(make).build(), 65);
        assert!(said.contains("is no regular file") && !said.contains("secret"), "{said}");
    }
    // Without such a library, nothing reads it.
    let none = host.container(Runtime::Runc).annotation("vgpu.type", "far").build();
    none.up().ok();
    assert!(!none.root().join(PRELOAD).exists());
    none.down().ok();
}

/// A container has one, and gets one only by the type's name.
#[test]
#[ignore = "needs root: starts containers"]
fn a_remote_type_is_asked_for_by_name_and_once() {
    let host = host(Cgroups::V2);
    let said = assert_refused(&far(&host, Runtime::Crun).annotation("vgpu.count", "2").build(), 65);
    assert!(said.contains("asks for 2 vGPUs of type far, which workers serve"), "{said}");
    let any = host.container(Runtime::Crun).annotation("vgpu.count", "2").recorded().build();
    any.up().ok();
    assert_eq!(sees::leased(&any, &any.probe(&[])).len(), 2);
    let said =
        assert_refused(&host.container(Runtime::Crun).annotation("vgpu.count", "1").recorded().build(), 75);
    assert!(said.contains("no free vGPU"), "{said}");
    any.down().ok();
}

/// A hook that is listed twice starts one worker; one that fails afterwards leaves none.
#[test]
#[ignore = "needs root: starts containers"]
fn a_worker_is_started_once_or_not_at_all() {
    let host = host(Cgroups::V1);
    let hook = host.hook("createRuntime");
    let hook: Vec<&str> = hook.iter().map(String::as_str).collect();
    let twice = far(&host, Runtime::Runc).hook("createRuntime", &hook).build();
    twice.up().ok();
    let process = Process::of(worker(&twice));
    assert_eq!(sockets(&host).len(), 1);
    twice.down().ok();
    process.ended();
    // The worker was started when the mount point is found to be none.
    let failing = far(&host, Runtime::Runc).furnish(|root| {
        fs::write(root.join("usr/local"), "").unwrap();
    });
    let failing = failing.build();
    assert_refused(&failing, 65);
    assert_eq!((client::workers(failing.id()), sockets(&host).len()), (vec![], 0));
}

/// A worker that was killed stays dead: nothing stands in for it behind the client's back.
#[test]
#[ignore = "needs root: starts containers"]
fn a_dead_worker_is_told_of_and_not_replaced() {
    let host = host(Cgroups::V2);
    let container = far(&host, Runtime::Runc).build();
    container.up().ok();
    // Anybody may look, but the worker answers root.
    let vgpu = host.dir().join("vgpu");
    let vgpu = vgpu.to_str().expect("UTF-8");
    host.view().run(&["cp", env!("CARGO_BIN_EXE_vgpu"), vgpu]).ok();
    let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let text = host
        .view()
        .run(&[&nobody[..], &[vgpu, "--config", &host.pool_file(), "status"]].concat())
        .ok()
        .stdout;
    assert!(text.contains("its worker answers root; run this as root"), "{text}");
    let process = Process::of(worker(&container));
    process.kill();
    process.ended();
    let text = host.vgpu(&["status"]).ok().stdout;
    assert!(text.contains("its worker has died, and is not replaced; stop the container"), "{text}");
    assert!(status(&host)["error"].as_str().unwrap().contains("has died"));
    assert!(client::workers(container.id()).is_empty());
    container.down().ok();
    assert_eq!(sockets(&host), [""; 0]);
}

/// An admin who takes the lease away takes the worker away.
#[test]
#[ignore = "needs root: starts containers"]
fn a_released_lease_ends_its_worker() {
    let host = host(Cgroups::V1);
    let [one, other] = [0, 1].map(|_| far(&host, Runtime::Runc).build());
    one.up().ok();
    other.up().ok();
    let [mine, theirs] = [&one, &other].map(worker);
    host.vgpu(&["release", one.id()]).fails();
    host.vgpu(&["release", "--force", one.id()]).ok();
    Process::of(mine).ended();
    assert_eq!((client::workers(other.id()), sockets(&host).len()), (vec![theirs], 1));
    one.delete_force().ok();
    other.delete_force().ok();
    Process::of(theirs).ended();
}

/// Whatever happens to the container, and also where no hook ever runs again, the worker sees its end.
#[test]
#[ignore = "needs root: starts containers"]
fn a_worker_ends_with_the_last_process_of_its_container() {
    for cgroups in [Cgroups::V1, Cgroups::V2] {
        let host = host(cgroups);
        let container = far(&host, Runtime::Runc).without_hooks_of("poststop").build();
        container.up().ok();
        let process = Process::of(worker(&container));
        container.down().ok();
        process.ended();
        // Its socket goes with its lease, when that is next looked at.
        assert_eq!(sockets(&host).len(), 1);
        host.vgpu(&["reclaim"]).ok();
        assert_eq!(sockets(&host), [""; 0]);
    }
}

/// Only what root has installed is run or brought in.
#[test]
#[ignore = "needs root: starts containers"]
fn what_is_not_installed_or_not_roots_is_refused() {
    let host = host(Cgroups::V1);
    let place = host.dir().join("place");
    make_dir(&place.join("bin"));
    make_dir(&place.join("lib/vgpu"));
    let vgpu = place.join("bin/vgpu");
    fs::copy(env!("CARGO_BIN_EXE_vgpu"), &vgpu).unwrap();
    let refused = |code: i32| {
        let pool = host.pool_file();
        let hook = [vgpu.to_str().unwrap(), "--config", &pool, "hook", "createRuntime"];
        let container = far(&host, Runtime::Runc).no_hooks().hook("createRuntime", &hook).recorded().build();
        assert_refused(&container, code)
    };
    let said = refused(69);
    assert!(
        said.contains("lib/vgpu/libvgpu_client.so, which isolation = \"remote\" needs; install all of vgpu"),
        "{said}"
    );
    for name in client::LIBRARIES {
        fs::copy(client::directory().join(name), place.join("lib/vgpu").join(name)).unwrap();
    }
    let said = refused(69);
    assert!(said.contains("lib/vgpu/vgpu-worker, which isolation"), "{said}");
    let worker = place.join("lib/vgpu/vgpu-worker");
    // One that ends at once is none, and no container starts without.
    fs::copy("/bin/true", &worker).unwrap();
    let said = refused(74);
    assert!(said.contains("the container's worker does not answer"), "{said}");
    assert_eq!((holders(&host).len(), sockets(&host).len()), (0, 0));
    fs::copy(client::directory().join("vgpu-worker"), &worker).unwrap();
    std::os::unix::fs::chown(&worker, Some(1000), None).unwrap();
    let said = refused(77);
    assert!(said.contains("is not trusted: it belongs to uid 1000"), "{said}");
    std::os::unix::fs::chown(&worker, Some(0), None).unwrap();
    fs::set_permissions(&worker, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let said = refused(69);
    assert!(said.contains("lib/vgpu/vgpu-worker cannot be executed; `chmod 755 "), "{said}");
    let pool = host.pool_file();
    let check = host.view().run(&[vgpu.to_str().unwrap(), "--config", &pool, "config", "check"]).ok().stdout;
    assert!(
        check.contains("warning: no container of type far would start: ") && check.contains("chmod"),
        "{check}"
    );
}

/// `vgpu plan` tells the same as the hook does.
#[test]
#[ignore = "needs root: makes a host"]
fn a_plan_shows_the_worker() {
    let host = host(Cgroups::V1);
    let plan: Value =
        serde_json::from_str(&host.vgpu(&["plan", "--type", "far", "--json"]).ok().stdout).unwrap();
    assert_eq!((&plan["nodes"], &plan["capabilities"]), (&Value::Array(vec![]), &Value::Array(vec![])));
    assert_eq!(plan["sockets"][0]["path"], "/dev/vgpu/worker");
    assert_eq!(plan["files"].as_array().unwrap().len(), client::LIBRARIES.len());
    let source = |file: &Value| Path::new(file["source"].as_str().unwrap()).is_file();
    assert!(plan["files"].as_array().unwrap().iter().all(source), "{plan}");
    let text = host.vgpu(&["plan", "--type", "far"]).ok().stdout;
    assert!(
        text.contains("by a worker") && text.contains("libraries of the client, in place of NVIDIA's"),
        "{text}"
    );
    assert!(!host.state_dir().join("workers").exists());
}

/// A hook that is listed twice, and between its calls another thing is meant by the type: what the container has is not
/// what it gets now, and it does not start with neither.
#[test]
#[ignore = "needs root: makes a container"]
fn a_type_that_becomes_another_while_its_container_starts() {
    let host = host(Cgroups::V1);
    let pool = |isolation: &str| {
        let kind = "[[type]]\nname = \"far\"\nmemory = \"64MiB\"\ncompute = 25\nisolation = ";
        format!("{kind}{isolation:?}\n[[gpu]]\nproduct = \"*\"\nvgpus = {{ far = 1 }}\n")
    };
    let lot = Lot::new(&host, 1).of_type("far");
    for (n, (before, after)) in [("remote", "none"), ("none", "remote")].into_iter().enumerate() {
        host.write_pool(&pool(before));
        let container = lot.park(&format!("{}-{n}", host.name()));
        host.run_hook("createRuntime", &container.created()).ok();
        host.write_pool(&pool(after));
        let refused = host.run_hook("createRuntime", &container.created()).exits(65);
        assert!(refused.stderr.contains("isolation was changed in pool.toml"), "{refused}");
        container.end();
        host.run_hook("poststop", &container.stopped()).ok();
    }
}

/// System calls of a hook that starts a worker fail in turn, or are its last: no worker outlives its container, none is
/// left by a start that was refused, and the next one is served.
fn calls_fail_in_turn(cgroups: Cgroups) {
    let host = host(cgroups);
    let lot = Lot::new(&host, 1).of_type("far");
    let first = lot.park(&format!("{}-first", host.name()));
    host.run_hook("createRuntime", &first.created()).ok();
    let end = |container: &mut common::parked::Parked| {
        let workers: Vec<Process> = client::workers(&container.id).into_iter().map(Process::of).collect();
        container.end();
        workers.iter().for_each(Process::ended);
    };
    let mut traced = lot.park(&format!("{}-traced", host.name()));
    let mut calls = strace::own_calls(&host, "createRuntime", &traced.created());
    end(&mut traced);
    let mut seed = Seed::new(&format!("remote {cgroups:?}"));
    calls.retain(|call| call.in_main);
    for n in (1..calls.len()).rev() {
        calls.swap(n, seed.below(n + 1));
    }
    // One of each name, and a few of the others.
    let (all, mut names) = (calls.len(), BTreeSet::new());
    calls.retain(|call| names.insert(call.name.clone()) || seed.below(40) == 0);
    say(&format!("remote {cgroups:?}: {} of {all} calls", calls.len()));
    for (n, call) in calls.iter().enumerate() {
        let fault = if seed.below(2) == 0 { Fault::Killed } else { Fault::Fails("EIO") };
        let mut container = lot.park(&format!("{}-hit-{n}", host.name()));
        let hit = strace::hit_own(&host, "createRuntime", &container.created(), call, fault);
        let about = format!("{call:?} {fault:?} {hit:?}");
        let workers = client::workers(&container.id).len();
        match hit.code {
            Some(0) => assert_eq!(workers, 1, "{about}"),
            Some(_) => assert_eq!(workers, 0, "{about}"),
            None => assert!(workers <= 1, "{about}"),
        }
        end(&mut container);
        let mut next = lot.park(&format!("{}-next-{n}", host.name()));
        host.run_hook("createRuntime", &next.created()).ok();
        assert_eq!(client::workers(&next.id).len(), 1, "{about}");
        end(&mut next);
        host.run_hook("poststop", &next.stopped()).ok();
        // Of a hook that was killed there may be a lease and no socket yet.
        assert!(sockets(&host).len() <= holders(&host).len(), "{about}");
    }
    host.vgpu(&["reclaim"]).ok();
    assert_eq!(sockets(&host).len(), 1, "that of the first");
}

on_v1_and_v2! {
    fn a_hook_that_fails_or_is_killed = calls_fail_in_turn;
}
