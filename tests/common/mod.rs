//! A simulated GPU host, and containers on it under every runtime.
//!
//! ```text
//! Host (host.rs)             driver root (files: driver.rs; MIG: mig.rs), pool file and state in a directory of its own
//!   └ View (view.rs)         private mount namespace: cgroup layout, /run, /dev/shm
//!       └ Running (command.rs)   a program in it, with a deadline and its output
//! Container (container.rs)   one container: create, start, run, exec, state, kill, delete
//!   ├ Rootfs (rootfs.rs)     a busybox tree; image.rs makes a distribution's of it
//!   ├ bundle.rs              its config.json
//!   └ Runtime (runtime.rs)   the command lines of runc, crun, podman and containerd
//! ```
//!
//! What a container sees is told by [`probe`], what it must see by [`sees`], what its cgroup allows by
//! [`cgroup`], who holds what by [`leases`]. Attacks are judged by [`attack`], with a container that is
//! [`halted`] before its hooks, a [`snapshot`] of what must not change, and a [`meddler`] that changes
//! something all the time. Tests wait for events ([`wait`]), each with a deadline that fails. A host cleans
//! up after itself when it is dropped, after a panic, and after the test process was killed (`view.sh`);
//! hosts in parallel tests share nothing.
//!
//! Everything here needs root, and the programs that `tests/setup.sh` installs: what is missing
//! fails the test.

// Each test binary uses a part of the harness.
#![allow(dead_code)]

pub mod attack;
pub mod bundle;
pub mod cgroup;
pub mod client;
pub mod command;
pub mod container;
pub mod driver;
pub mod halted;
pub mod host;
pub mod image;
pub mod leases;
#[path = "../ldcache/library.rs"]
pub mod library;
pub mod meddler;
pub mod mig;
pub mod parked;
pub mod probe;
pub mod rootfs;
pub mod runtime;
pub mod seed;
pub mod sees;
pub mod snapshot;
pub mod sonames;
pub mod strace;
pub mod view;
pub mod wait;

/// What `crates/client/tests/common/programs.rs` asks for.
#[allow(unused_imports, reason = "by one test")]
pub use client::{SONAMES, install};

/// One `#[test]` for each combination of cgroup layout and runtime; the body gets both.
///
/// ```ignore
/// on_every_runtime! {
///     fn name_of_the_test(cgroups, runtime) { let host = Host::new(cgroups); … }
/// }
/// ```
#[macro_export]
macro_rules! on_every_runtime {
    ($(#[$doc:meta])* fn $name:ident($cgroups:ident, $runtime:ident) $body:block) => {
        $(#[$doc])*
        fn $name($cgroups: $crate::common::view::Cgroups, $runtime: $crate::common::runtime::Runtime) $body

        mod $name {
            $crate::on_every_runtime! { @tests $name
                runc_v1: V1, Runc;
                runc_hybrid: Hybrid, Runc;
                runc_v2: V2, Runc;
                crun_v1: V1, Crun;
                crun_v2: V2, Crun;
                podman_runc_v1: V1, PodmanRunc;
                podman_runc_hybrid: Hybrid, PodmanRunc;
                podman_runc_v2: V2, PodmanRunc;
                podman_crun_v1: V1, PodmanCrun;
                podman_crun_v2: V2, PodmanCrun;
                containerd_v1: V1, Containerd;
                containerd_hybrid: Hybrid, Containerd;
                containerd_v2: V2, Containerd;
            }
        }
    };
    (@tests $name:ident $($case:ident: $cgroups:ident, $runtime:ident;)*) => {
        $(
            #[test]
            #[ignore = "needs root: starts containers"]
            fn $case() {
                use $crate::common::{runtime::Runtime, view::Cgroups};
                super::$name(Cgroups::$cgroups, Runtime::$runtime);
            }
        )*
    };
}

/// Two `#[test]`s of one body, a function of the cgroup layout: `v1` and `v2`.
#[macro_export]
macro_rules! on_v1_and_v2 {
    ($(fn $name:ident = $body:expr;)*) => { $(
        mod $name {
            use super::*;

            #[test]
            #[ignore = "needs root: makes containers"]
            fn v1() {
                ($body)(Cgroups::V1);
            }

            #[test]
            #[ignore = "needs root: makes containers"]
            fn v2() {
                ($body)(Cgroups::V2);
            }
        }
    )* };
}
