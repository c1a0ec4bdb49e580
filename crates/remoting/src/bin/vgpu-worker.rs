//! The worker of one container: [`vgpu_remoting::server`].

#[cfg(not(loom))]
fn main() -> std::process::ExitCode {
    use vgpu_remoting::server::{Arguments, USAGE, run};

    let arguments = match Arguments::parse(std::env::args_os().skip(1)) {
        Ok(arguments) => arguments,
        Err(wrong) => {
            eprintln!("vgpu-worker: {wrong}; usage: {USAGE}");
            return 64.into();
        }
    };
    match run(&arguments) {
        Ok(()) => 0.into(),
        Err(error) => {
            eprintln!("vgpu-worker: {:?}: {error}", arguments.socket);
            1.into()
        }
    }
}

#[cfg(loom)]
fn main() {}
