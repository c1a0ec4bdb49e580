//! Links the client under the name by which the facades want it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libvgpu_client.so");
    // Threads that end, and children, come back to it.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
