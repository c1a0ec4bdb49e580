//! The worker is asked the same of a C program, in the same order, whether descriptor calls are answered in the container
//! or forwarded: functions, contents, numbers and addresses.

mod common;
#[path = "common/recorder.rs"]
mod recorder;

use common::{compiled, installed};
use recorder::recorded;
use vgpu_remoting::counters::Counts;

/// Runs a program in each mode: what is asked of the worker for it, and what it says, must be the same; and what it has
/// counted with reuse.
fn the_same_in_each_mode(source: &str) -> (Vec<String>, Counts) {
    let libraries = installed();
    let names = ["libcudnn.so.9", "libcublas.so.12", "libcudart.so.12"];
    let program = compiled(source, libraries.path(), &names);
    let [reused, forwarded, waited] =
        ["", "off", "off,waiting"].map(|reuse| recorded(&program, libraries.path(), reuse));
    for (mode, other) in [("off", forwarded), ("off,waiting", waited)] {
        let differ = reused.1.iter().zip(&other.1).position(|(one, other)| one != other);
        let there = differ.map(|at| (at, &reused.1[at], &other.1[at]));
        assert_eq!((there, reused.1.len()), (None, other.1.len()), "{mode}");
        assert_eq!(reused.0, other.0, "{mode}");
    }
    (reused.1, reused.2)
}

fn count(records: &[String], name: &str) -> usize {
    records.iter().filter(|record| record.starts_with(name)).count()
}

#[test]
fn training_asks_the_same_in_each_mode() {
    let (records, _) = the_same_in_each_mode("lenet.c");
    // Of 150 iterations, and ten examinations.
    assert_eq!(count(&records, "cudnnSoftmaxForward "), 160);
    assert_eq!(count(&records, "cudnnConvolutionBackwardData "), 150);
    assert_eq!(count(&records, "cublasSnrm2_v2 "), 150);
    assert!(count(&records, "bytes ") >= 2 * 150 && count(&records, "allocate ") > 30);
}

/// Batches of other sizes, within an iteration and from one to the next, and a layer that is added.
#[test]
fn shapes_that_change_are_asked_for_and_computed_on_in_each_mode() {
    let (records, counts) = the_same_in_each_mode("shapes.c");
    let batches = |n: usize| {
        let begin = format!("dims: [{n}, 3, 6, 6,");
        records
            .iter()
            .filter(|record| record.starts_with("cudnnActivation") && record.contains(&begin))
            .count()
    };
    // Of three layers and then four, each way; and what is looked at between, some of it by one layer.
    assert_eq!([8, 3, 2].map(batches), [60 + 80, 12 + 24 + 7, 7 + 6]);
    // Five batches, and a filter, a convolution and an activation. Guesses are wrong where shapes are others.
    let Counts { predicted, known, new, .. } = counts;
    assert!(new == 8 && known > 0 && predicted > 2 * known, "{counts:?}");
}
