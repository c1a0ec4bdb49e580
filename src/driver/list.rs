//! Which files of the driver a container needs for which capability: one table. Pure.

use super::Kind;
use super::capability::{Capabilities, Capability};

/// One line of the table.
#[derive(Clone, Copy, Debug)]
pub struct Item {
    /// What it is.
    pub kind: Kind,
    /// A library's without `lib` and `.so`, a binary's file name, the path of a socket or of configuration.
    pub name: &'static str,
    /// It is needed for any of these.
    pub capabilities: Capabilities,
    /// Its version, where that is not the driver's: of a library that comes with the driver and is built apart.
    pub version: Option<&'static str>,
    /// Without it there is no sense in starting the container.
    pub required: bool,
    /// Names without a number (or of another library) under which programs look for it, beside its own and
    /// its SONAME.
    pub links: &'static [&'static str],
}

const UTILITY: Capabilities = Capabilities::of(&[Capability::Utility]);
const COMPUTE: Capabilities = Capabilities::of(&[Capability::Compute]);
const VIDEO: Capabilities = Capabilities::of(&[Capability::Video]);
const GRAPHICS: Capabilities = Capabilities::of(&[Capability::Graphics]);
const NGX: Capabilities = Capabilities::of(&[Capability::Ngx]);

/// All that there is. `display` adds no file to `graphics` but a node, `compat32` the libraries of the other
/// capabilities once more, for 32 bits.
pub const ITEMS: &[Item] = &[
    library("nvidia-ml", UTILITY).required().links(&["libnvidia-ml.so"]),
    library("nvidia-cfg", UTILITY),
    library("nvidia-nscq", UTILITY),
    library("cuda", COMPUTE).required().links(&["libcuda.so"]),
    library("cudadebugger", COMPUTE),
    library("nvidia-opencl", COMPUTE),
    // Compiles shaders as well as kernels.
    library("nvidia-gpucomp", COMPUTE.or(GRAPHICS)),
    library("nvidia-ptxjitcompiler", COMPUTE),
    library("nvidia-fatbinaryloader", COMPUTE),
    library("nvidia-allocator", COMPUTE),
    library("nvidia-compiler", COMPUTE),
    library("nvidia-pkcs11", COMPUTE),
    library("nvidia-pkcs11-openssl3", COMPUTE),
    library("nvidia-nvvm", COMPUTE),
    library("nvidia-tileiras", COMPUTE),
    // libvdpau asks the linker for the name without a number.
    library("vdpau_nvidia", VIDEO).links(&["libvdpau_nvidia.so"]),
    library("nvidia-encode", VIDEO).links(&["libnvidia-encode.so"]),
    library("nvidia-opticalflow", VIDEO).links(&["libnvidia-opticalflow.so"]),
    library("nvcuvid", VIDEO).links(&["libnvcuvid.so"]),
    library("nvidia-eglcore", GRAPHICS),
    library("nvidia-glcore", GRAPHICS),
    library("nvidia-tls", GRAPHICS),
    library("nvidia-glsi", GRAPHICS),
    library("nvidia-fbc", GRAPHICS),
    library("nvidia-ifr", GRAPHICS),
    library("nvidia-rtcore", GRAPHICS),
    library("nvidia-glvkspirv", GRAPHICS),
    library("nvidia-cbl", GRAPHICS),
    library("nvoptix", GRAPHICS),
    // libGLX looks for the vendor of indirect rendering under this name.
    library("GLX_nvidia", GRAPHICS).links(&["libGLX_indirect.so.0"]),
    library("EGL_nvidia", GRAPHICS),
    library("GLESv2_nvidia", GRAPHICS),
    library("GLESv1_CM_nvidia", GRAPHICS),
    // By these EGL finds its way to GBM and Wayland.
    library("nvidia-egl-gbm", GRAPHICS).version("1"),
    library("nvidia-egl-wayland", GRAPHICS).version("1"),
    library("nvidia-ngx", NGX),
    item(Kind::Binary, "nvidia-smi", UTILITY),
    item(Kind::Binary, "nvidia-debugdump", UTILITY),
    item(Kind::Binary, "nvidia-persistenced", UTILITY),
    item(Kind::Binary, "nvidia-cuda-mps-control", COMPUTE),
    item(Kind::Binary, "nvidia-cuda-mps-server", COMPUTE),
    item(Kind::Socket, "run/nvidia-persistenced/socket", UTILITY),
    item(Kind::Socket, "run/nvidia-fabricmanager/socket", UTILITY),
    item(Kind::Config, "etc/OpenCL/vendors/nvidia.icd", COMPUTE),
    item(Kind::Config, "usr/share/vulkan/icd.d/nvidia_icd.json", GRAPHICS),
    // Its name where a distribution has Vulkan for several processors (Fedora).
    item(Kind::Config, "usr/share/vulkan/icd.d/nvidia_icd.x86_64.json", GRAPHICS),
    item(Kind::Config, "usr/share/vulkan/implicit_layer.d/nvidia_layers.json", GRAPHICS),
    item(Kind::Config, "usr/share/glvnd/egl_vendor.d/10_nvidia.json", GRAPHICS),
    item(Kind::Config, "usr/share/egl/egl_external_platform.d/10_nvidia_wayland.json", GRAPHICS),
    item(Kind::Config, "usr/share/egl/egl_external_platform.d/15_nvidia_gbm.json", GRAPHICS),
    item(Kind::Config, "usr/share/nvidia/nvoptix.bin", GRAPHICS),
];

const fn item(kind: Kind, name: &'static str, capabilities: Capabilities) -> Item {
    Item { kind, name, capabilities, version: None, required: false, links: &[] }
}

const fn library(name: &'static str, capabilities: Capabilities) -> Item {
    item(Kind::Library, name, capabilities)
}

impl Item {
    const fn version(self, version: &'static str) -> Self {
        Self { version: Some(version), ..self }
    }

    const fn required(self) -> Self {
        Self { required: true, ..self }
    }

    const fn links(self, links: &'static [&'static str]) -> Self {
        Self { links, ..self }
    }
}
