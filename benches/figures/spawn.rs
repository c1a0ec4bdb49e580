//! One program, started directly and waited for. The kernel's part of starting it is in the figure, no
//! shell is: std starts it by posix_spawn(3), which does not copy this process.

use std::io::Write;
use std::process::Command;
use std::time::{Duration, Instant};

/// How long it took from the start to the end, with this text on standard input as a runtime gives it: in
/// a pipe. The environment is empty.
pub fn timed(argv: &[&str], stdin: &str) -> Duration {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    writer.write_all(stdin.as_bytes()).expect("a pipe holds a state");
    drop(writer);
    let mut command = Command::new(argv[0]);
    command.args(&argv[1..]).env_clear().stdin(reader);
    let start = Instant::now();
    let ended = command.spawn().and_then(|mut child| child.wait());
    let took = start.elapsed();
    let status = ended.unwrap_or_else(|e| panic!("cannot run {argv:?}: {e}"));
    assert!(status.success(), "{argv:?}: {status}");
    took
}
