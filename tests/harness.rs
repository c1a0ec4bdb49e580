//! The harness itself: every runtime runs a container, calls its hooks, and leaves nothing behind.

mod common;

use common::host::Host;
use common::probe::{self, Opened, Probe};
use common::runtime::Runtime;
use common::view::Cgroups;

/// A container with `/bin/true` as every hook, beside a node of a GPU that no rule allows.
fn plain_container(host: &Host, runtime: Runtime, mapped: bool) -> common::container::Builder<'_> {
    host.container(runtime)
        .no_hooks()
        .hook("createRuntime", &["/bin/true"])
        .hook("poststop", &["/bin/true"])
        .recorded()
        .mapped_if(mapped)
        .furnish(|root| common::host::make_node(&root.join("opt/gpu"), common::host::MAJOR, 9))
}

on_every_runtime! {
    /// Foreground, to its end.
    fn runs(cgroups, runtime) {
        let host = Host::new(cgroups);
        for mapped in [false, true] {
            let container = plain_container(&host, runtime, mapped).args(&probe::argv(&["/opt/gpu"])).build();
            let output = container.run().ok();
            let sees = probe::parse(&output.stdout);
            let opened = sees.opened["/opt/gpu"].clone();
            assert_eq!(sees, Probe { opened: sees.opened.clone(), ..Probe::default() });
            let confined = !mapped || runtime.confines_mapped();
            let expected = if confined { Opened::Forbidden } else { Opened::Allowed };
            assert_eq!(opened, expected, "mapped: {mapped}");
            assert_eq!(container.hook_codes("createRuntime"), [0]);
        }
    }
}

on_every_runtime! {
    /// Step by step.
    fn lives_and_dies(cgroups, runtime) {
        let host = Host::new(cgroups);
        for mapped in [false, true] {
            let container = plain_container(&host, runtime, mapped).build();
            container.create().ok();
            assert_eq!(container.state().expect("created").status, "created");
            container.start().ok();
            assert_eq!(container.state().expect("running").status, "running");
            assert!(container.exec(&["cat", "/proc/1/cmdline"]).ok().stdout.contains("sleep"));
            let confined = !container.device_rules().iter().all(|rule| rule == "a *:* rwm");
            assert_eq!(confined, !mapped || runtime.confines_mapped());
            container.down().ok();
            assert_eq!(container.hook_codes("createRuntime"), [0]);
            assert_eq!(container.hook_codes("poststop"), [0]);
        }
    }
}

/// A host that is dropped with running containers leaves no process, cgroup, mount or file.
#[test]
#[ignore = "needs root: starts containers"]
fn a_dropped_host_leaves_nothing() {
    for cgroups in [Cgroups::V1, Cgroups::Hybrid, Cgroups::V2] {
        let host = Host::new(cgroups);
        let container = plain_container(&host, Runtime::Runc, false).overlay().build();
        container.up().ok();
        let init = common::wait::Process::of(container.pid());
        let (dir, name) = (host.dir().to_owned(), host.name().to_owned());
        drop(container);
        drop(host);
        init.ended();
        assert!(!dir.exists());
        let below = std::process::Command::new("find")
            .args(["/sys/fs/cgroup", "-maxdepth", "2", "-name", &name])
            .output()
            .expect("find");
        assert_eq!(String::from_utf8_lossy(&below.stdout), "");
    }
}
