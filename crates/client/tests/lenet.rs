//! A C program trains LeNet-5 through the facades and a real `vgpu-worker`, in each mode: to over 95% right, and to the
//! same weights bit for bit; and what it takes is what is promised.

mod common;

use std::path::Path;
use std::process::Command;

use common::{Worker, compiled, installed, said};

const LINKED: [&str; 3] = ["libcudnn.so.9", "libcublas.so.12", "libcudart.so.12"];

/// Trains: what it says, in lines, of which the last is how many calls an iteration takes, the weights' hash, and how many
/// percent of digits it gets right.
fn trained(program: &mut Command, libraries: &Path, worker: &Worker, reuse: &str) -> Vec<String> {
    program.env("LD_LIBRARY_PATH", libraries).env("VGPU_WORKER", worker.socket()).env("VGPU_REUSE", reuse);
    let (out, err) = said(&program.output().unwrap());
    let lines: Vec<String> = out.lines().map(Into::into).collect();
    eprint!("VGPU_REUSE={reuse}: {}\n{err}", lines.last().unwrap());
    // Nothing that is not served, and a worker.
    assert!(!err.contains("vgpu:"), "{err}");
    lines
}

#[test]
fn a_c_program_learns_the_same_in_each_mode() {
    let libraries = installed();
    let program = compiled("lenet.c", libraries.path(), &LINKED);
    let worker = Worker::start(64 << 20);
    let [reused, forwarded, waited] = ["", "off", "off,waiting"]
        .map(|reuse| trained(&mut Command::new(&program), libraries.path(), &worker, reuse));
    let right = reused[0].split(' ').nth(2).unwrap();
    assert!(right.parse::<f64>().unwrap() > 95.0);
    assert_eq!(forwarded, reused);
    assert_eq!(waited, reused);
}

/// What an iteration took, by column.
struct Row<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Row<'a> {
    fn new(names: &'a str, values: &'a str) -> Self {
        Self(names.split(' ').zip(values.split(' ')).collect())
    }

    fn get(&self, column: &str) -> u64 {
        let value = self.0.iter().find(|(name, _)| *name == column).map(|(_, value)| value);
        value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{column}"))
    }
}

/// From the third iteration on there is no record of a descriptor, nor of a question; the worker is woken for what is
/// waited for and once in 64 records at most; and contents are as they were.
#[test]
fn from_the_third_iteration_on_nothing_is_sent_but_computes_and_memory() {
    let libraries = installed();
    let program = compiled("lenet.c", libraries.path(), &LINKED);
    let worker = Worker::start(64 << 20);
    let lines = trained(Command::new(program).arg("--table"), libraries.path(), &worker, "");
    let (names, rows) = lines.split_first().unwrap();
    let mut found = [0; 2];
    let rows = &rows[..rows.len() - 1];
    assert_eq!(rows.len(), 150);
    for row in rows.iter().skip(2).map(|line| Row::new(names, line)) {
        assert_eq!(row.get("counted"), row.get("calls"), "each call is counted");
        assert_eq!(row.get("records"), row.get("computes"));
        assert!(row.get("wakeups") <= row.get("waits") + row.get("records") / 64);
        assert_eq!(row.get("new"), 0);
        found[0] += row.get("predicted");
        found[1] += row.get("known");
    }
    let [predicted, known] = found;
    assert!(predicted > 0 && predicted >= 95 * (predicted + known) / 100, "{predicted} and {known}");
}
