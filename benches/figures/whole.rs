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
use crate::series::{self, Series};
use crate::spawn::timed;

/// How often each is measured.
const ROUNDS: usize = 40;

/// Prints the table.
pub fn print() {
    let host = Host::new(Cgroups::V2);
    let containers = [
        container(&host, Builder::no_hooks),
        container(&host, Builder::no_hooks),
        container(&host, |builder| builder),
        container(&host, |builder| builder.annotation("vgpu.count", "1")),
    ];
    let mut all = ["no hook", "no hook again", "no request", "one vGPU"].map(Series::new);
    let _view = Inside::enter(&host.view().namespace());
    for round in 0..ROUNDS {
        for at in series::order(all.len(), round) {
            all[at].push(life(&containers[at]));
        }
    }
    series::print("runc create + start + delete, for scale only, cgroup V2", &all);
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
