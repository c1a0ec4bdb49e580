//! A whole `runc create`, `start` and `delete`, with and without the hook: for scale only. Most of it is
//! runc's, and differs from run to run by more than the hook takes.

use std::time::Duration;

use crate::common::command::program;
use crate::common::container::{Builder, Container};
use crate::common::host::Host;
use crate::common::runtime::{Runtime, Step};
use crate::common::view::Cgroups;
use crate::common::wait::Process;
use crate::parked::{Inside, text};
use crate::spawn::timed;
use crate::turns::{Candidate, compare};

/// How often each is measured.
const ROUNDS: usize = 40;

/// Prints the table.
pub fn print() {
    let host = Host::new(Cgroups::V2);
    let plain = container(&host, Builder::no_hooks);
    let hooked = container(&host, |builder| builder);
    let asking = container(&host, |builder| builder.annotation("vgpu.count", "1"));
    let _view = Inside::enter(&host.view().namespace());
    let candidates = vec![
        Candidate::new("no hook", || life(&plain)),
        Candidate::new("no hook again", || life(&plain)),
        Candidate::new("no request", || life(&hooked)),
        Candidate::new("one vGPU", || life(&asking)),
    ];
    compare("runc create + start + delete, for scale only, cgroup v2", ROUNDS, candidates);
}

fn container<'h>(host: &'h Host, hooks: impl FnOnce(Builder<'h>) -> Builder<'h>) -> Container<'h> {
    hooks(host.container(Runtime::Runc)).args(&["true"]).build()
}

/// Its program ends in between, whenever that is; the wait for it does not count.
fn life(container: &Container) -> Duration {
    let step = |step| {
        let command = Runtime::Runc.commands(container, step).remove(0);
        let runc = program(&command[0]);
        let arguments = command[1..].iter().map(String::as_str);
        timed(&[text(&runc)].into_iter().chain(arguments).collect::<Vec<_>>(), "")
    };
    let created = step(Step::Create);
    let process = Process::of(container.pid());
    let started = step(Step::Start);
    process.ended();
    created + started + step(Step::Delete)
}
