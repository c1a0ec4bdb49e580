//! The tests of cuDNN and cuBLAS that the crate `cudarc` has, as they are, through the facades and a real `vgpu-worker`. Two
//! of them convolve so much that they take 3 GB of memory, two thirds of it the worker's, and half a minute.

#[path = "common/mod.rs"]
mod common;
#[path = "common/programs.rs"]
mod programs;

use std::collections::BTreeSet;
use std::process::Command;

use common::{Worker, installed, said};

/// Those that are of neither, by what they begin with: the rest is of the driver, of kernels and of other libraries.
const OURS: [&str; 2] = ["cublas::", "cudnn::"];

/// What is not run, and why.
const LEFT_OUT: [(&str, &str); 2] = [
    ("cublas::safe::grouped_gemm::tests::test_grouped_gemm_f16", "it panics of CUDA before 12.5"),
    ("cublas::safe::grouped_gemm::tests::test_grouped_gemm_raw_bf16", "it panics of CUDA before 12.5"),
];

/// What is run once only, and not in the other mode.
const LONG: [&str; 2] = ["cudnn::safe::tests::test_conv3d", "cudnn::safe::tests::test_conv_bias_activation"];

/// The names in lines that begin and end so.
fn names<'a>(lines: &'a str, before: &str, after: &str) -> BTreeSet<&'a str> {
    lines.lines().filter_map(|line| line.strip_prefix(before)?.strip_suffix(after)).collect()
}

#[test]
fn its_tests_pass() {
    let libraries = installed();
    let program = programs::made(&["test", "-p", "cudarc", "--lib", "--no-run"], libraries.path());
    let (listed, _) =
        said(&Command::new(&program).args(["--list", "--format", "terse"]).args(OURS).output().unwrap());
    let mut all = names(&listed, "", ": test");
    for (name, why) in LEFT_OUT {
        assert!(all.remove(name), "{name}");
        println!("left out: {name}: {why}");
    }
    assert_eq!(all.len(), 17, "{all:?}");
    let worker = Worker::start(4 << 30);
    for reuse in ["", "off"] {
        let wanted: BTreeSet<&str> =
            all.iter().copied().filter(|name| reuse.is_empty() || !LONG.contains(name)).collect();
        let mut command = Command::new(&program);
        command.args(["--exact", "--test-threads", "1"]).args(&wanted);
        command.env("LD_LIBRARY_PATH", libraries.path()).env("VGPU_WORKER", worker.socket());
        let (out, err) = said(&command.env("VGPU_REUSE", reuse).output().unwrap());
        println!("VGPU_REUSE={reuse}: {out}");
        assert_eq!(names(&out, "test ", " ... ok"), wanted);
        // Nothing that is not served.
        assert_eq!(err, "");
    }
}
