//! Who holds what, as `vgpu status` tells it and as the next request finds it.

use super::container::{Builder, Container};
use super::host::{Gpu, Host};
use super::runtime::Runtime;
use super::view::Cgroups;

/// A host with one vGPU: whether it is free is seen by asking for it.
pub fn host_with_one_vgpu(cgroups: Cgroups) -> Host {
    let gpus = Gpu::several(1);
    let pool = one_vgpu(&gpus[0]);
    Host::builder(cgroups).gpus(gpus).pool(pool).build()
}

/// The pool file that cuts a GPU into one vGPU.
pub fn one_vgpu(gpu: &Gpu) -> String {
    format!(
        "[[type]]\nname = \"whole\"\nmemory = \"10GiB\"\ncompute = 100\n\n\
         [[gpu]]\nuuid = {:?}\nvgpus = {{ whole = 1 }}\n",
        gpu.uuid
    )
}

/// A container that asks for it.
pub fn asking(host: &Host, runtime: Runtime) -> Builder<'_> {
    host.container(runtime).annotation("vgpu.count", "1").recorded()
}

/// The vGPU is there for the next request.
#[track_caller]
pub fn assert_free(host: &Host, runtime: Runtime) {
    let next = asking(host, runtime).build();
    next.up().ok();
    assert_eq!(holders(host), [next.oci_id()]);
    next.down().ok();
}

/// The next request is refused, and told who has the vGPU.
#[track_caller]
pub fn assert_taken_by(host: &Host, runtime: Runtime, holder: &str) {
    let said = assert_refused(&asking(host, runtime).build(), 75);
    // Engines show the first 12 digits of their long hexadecimal ids, and so does vgpu.
    let shown = if holder.len() == 64 { &holder[..12] } else { holder };
    assert!(said.contains(shown), "{said}");
    assert_eq!(holders(host), [holder]);
}

/// The container is not started because its hook exits so. What the hook said.
#[track_caller]
pub fn assert_refused(container: &Container, exit: i32) -> String {
    let output = container.up().fails();
    let said = container.hook_stderr("createRuntime");
    assert_eq!(container.hook_codes("createRuntime"), [exit], "{said}{output}");
    container.delete_force();
    said
}

/// The containers that hold something, dead or alive, the first lease first.
pub fn holders(host: &Host) -> Vec<String> {
    let status = host.status();
    let leases = status["leases"].as_array().expect("leases");
    leases.iter().map(|lease| lease["container"].as_str().expect("an id").to_owned()).collect()
}
