//! Calls the library, returns its exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    vgpu::cli::main()
}
