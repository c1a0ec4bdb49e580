//! Calls the library, returns its exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    if std::env::args_os().skip(1).eq(vgpu::gpu::PROBE_ARGS) {
        return vgpu::gpu::answer_probe();
    }
    ExitCode::from(vgpu::error::Exit::Usage as u8)
}
