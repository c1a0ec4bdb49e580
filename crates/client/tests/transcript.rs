//! Through the C functions, calls are answered as the real libraries answered them when the transcripts of
//! `vgpu-remoting` were recorded.
#![allow(unsafe_code, reason = "loads a library")]

mod common;
#[allow(dead_code, reason = "random calls are for the example")]
#[path = "../../remoting/tests/conformance/mod.rs"]
mod conformance;
#[allow(dead_code, reason = "the version is for the example")]
#[path = "../../remoting/tests/conformance/real.rs"]
mod real;

use conformance::{Answer, Call};
use real::Real;

fn check(soname: &str, transcript: &str) {
    let directory = common::installed();
    // Cargo's LD_LIBRARY_PATH may lead to one that an earlier build has left.
    // SAFETY: it does nothing when it is loaded.
    let _client = unsafe { libloading::Library::new(directory.path().join("libvgpu_client.so")) }.unwrap();
    let mut facade = Real::load(&directory.path().join(soname)).unwrap();
    for line in transcript.lines().skip(1) {
        let (call, answer) = line.split_once(" = ").unwrap();
        let (call, answer): (Call, Answer) = (call.parse().unwrap(), answer.parse().unwrap());
        assert_eq!(facade.answer(&call), answer, "{call}");
    }
}

#[test]
fn answers_as_cudnn_8_does() {
    check("libcudnn.so.8", include_str!("../../remoting/tests/conformance/cudnn8.txt"));
}

#[test]
fn answers_as_cudnn_9_does() {
    check("libcudnn.so.9", include_str!("../../remoting/tests/conformance/cudnn9.txt"));
}
