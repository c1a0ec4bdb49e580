//! The driver's files are found wherever distributions put them, and nothing else is taken for them.
//!
//! Each test has a driver's root of its own in a temporary directory. The libraries in it are shared objects
//! made by the compiler of this machine, with the SONAMEs of NVIDIA's; vgpu trusts them only when root owns
//! them.

#[path = "ldcache/library.rs"]
mod library;

use std::collections::HashMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use vgpu::driver::{self, Found, Grant, Kind};
use vgpu::error::{Error, Exit};
use vgpu::gpu::DriverRoot;

#[path = "common/sonames.rs"]
mod sonames;
use sonames::LIBRARIES;

const VERSION: &str = "550.54.15";

/// Debian's directory for libraries of this machine.
const MULTIARCH: &str =
    if cfg!(target_arch = "aarch64") { "usr/lib/aarch64-linux-gnu" } else { "usr/lib/x86_64-linux-gnu" };

const BINARIES: [&str; 5] = [
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
];

const SOCKETS: [&str; 2] = ["run/nvidia-persistenced/socket", "run/nvidia-fabricmanager/socket"];

/// Configuration of OpenCL's loader, and of those of graphics, by the paths at which these look.
const OPENCL: &str = "etc/OpenCL/vendors/nvidia.icd";
const OF_GRAPHICS: [&str; 7] = [
    "usr/share/vulkan/icd.d/nvidia_icd.json",
    "usr/share/vulkan/icd.d/nvidia_icd.x86_64.json",
    "usr/share/vulkan/implicit_layer.d/nvidia_layers.json",
    "usr/share/glvnd/egl_vendor.d/10_nvidia.json",
    "usr/share/egl/egl_external_platform.d/10_nvidia_wayland.json",
    "usr/share/egl/egl_external_platform.d/15_nvidia_gbm.json",
    "usr/share/nvidia/nvoptix.bin",
];

fn file_name(library: &str) -> String {
    // These have versions of their own, and are found by the links that say which are compatible.
    let version = if library.starts_with("nvidia-egl-") { "1" } else { VERSION };
    format!("lib{library}.so.{version}")
}

/// A shared object with this SONAME, made once.
fn shared_object(options: &[&str], soname: &str) -> Vec<u8> {
    static MADE: Mutex<Option<HashMap<String, Vec<u8>>>> = Mutex::new(None);
    let key = format!("{options:?} {soname}");
    let mut made = MADE.lock().unwrap();
    let object = made.get_or_insert_default().entry(key).or_insert_with(|| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("object");
        let mut gcc = Command::new("gcc");
        gcc.args(["-shared", "-nostdlib", "-x", "c", "/dev/null", "-o"]).arg(&path).args(options);
        assert!(gcc.arg(format!("-Wl,-soname,{soname}")).status().unwrap().success());
        fs::read(path).unwrap()
    });
    object.clone()
}

/// A driver's root.
struct Root {
    dir: tempfile::TempDir,
    /// Relative to `dir`.
    at: &'static str,
}

impl Root {
    fn new() -> Self {
        Self::at("")
    }

    /// A root further down, as that of a driver container is on the host.
    fn at(at: &'static str) -> Self {
        let root = Self { dir: tempfile::tempdir().unwrap(), at };
        fs::create_dir_all(root.path("")).unwrap();
        root
    }

    fn path(&self, below: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(self.at).join(below)
    }

    fn file(&self, below: &str, content: &[u8]) -> PathBuf {
        let path = self.path(below);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    fn link(&self, below: &str, target: &str) {
        let path = self.path(below);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
    }

    /// A library of the driver in this directory, with its own SONAME.
    fn library(&self, dir: &str, library: &str) -> PathBuf {
        let (_, soname) = LIBRARIES.iter().find(|(name, _)| *name == library).unwrap();
        let file = file_name(library);
        let object = shared_object(&[], soname.unwrap_or(&file));
        self.file(&format!("{dir}/{file}"), &object)
    }

    fn libraries(&self, dir: &str, libraries: &[&str]) {
        for library in libraries {
            self.library(dir, library);
        }
    }

    fn socket(&self, below: &str) {
        let path = self.path(below);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        // The file stays when the listener goes.
        UnixListener::bind(path).unwrap();
    }

    /// A driver with all its files, as the distribution's packages would install it.
    fn complete() -> Self {
        let root = Self::new();
        for (library, _) in LIBRARIES {
            let dir = if library == "vdpau_nvidia" { format!("{MULTIARCH}/vdpau") } else { MULTIARCH.into() };
            root.library(&dir, library);
        }
        for binary in BINARIES {
            root.file(&format!("usr/bin/{binary}"), b"\x7fELF");
        }
        for socket in SOCKETS {
            root.socket(socket);
        }
        for config in [OPENCL].into_iter().chain(OF_GRAPHICS) {
            root.file(config, b"{}");
        }
        root
    }

    /// The linker cache of the libraries that are there now, in these directories beside ldconfig's own.
    fn ldconfig(&self, dirs: &[&str]) {
        self.file("etc/ld.so.conf", dirs.join("\n").as_bytes());
        let mut ldconfig = Command::new("/sbin/ldconfig");
        assert!(ldconfig.arg("-r").arg(self.path("")).status().unwrap().success());
    }

    fn find(&self, capabilities: &str) -> Result<Found, Error> {
        let root = DriverRoot::open(&self.path("")).unwrap();
        driver::find(&root, VERSION, Grant::default().asked(Some(capabilities)).unwrap())
    }

    fn refused(&self, capabilities: &str, exit: Exit) -> String {
        let error = self.find(capabilities).unwrap_err();
        assert_eq!(error.exit, exit, "{error}");
        // What is below the root is named as the host knows it.
        error.to_string().replace(&*self.path("").to_string_lossy(), "ROOT/").replace("//", "/")
    }
}

/// The names of the libraries found, each one's own first.
fn libraries(found: &Found) -> Vec<String> {
    of_kind(found, Kind::Library)
}

fn of_kind(found: &Found, kind: Kind) -> Vec<String> {
    found.files.iter().filter(|file| file.kind == kind).map(|file| file.names.join(" ")).collect()
}

/// Where links to configuration go.
fn link_places(found: &Found) -> Vec<&str> {
    let config = found.files.iter().filter(|file| file.kind == Kind::Config);
    config.filter_map(|file| file.link_at.as_deref()).collect()
}

/// Where they were found.
fn paths(found: &Found) -> Vec<&str> {
    found.files.iter().map(|file| file.path.as_str()).collect()
}

#[test]
#[ignore = "needs root: only root's files are trusted"]
fn the_default_set_with_its_names() {
    let found = Root::complete().find("").unwrap();
    assert_eq!(
        libraries(&found),
        [
            "libnvidia-ml.so.550.54.15 libnvidia-ml.so.1 libnvidia-ml.so",
            "libnvidia-cfg.so.550.54.15 libnvidia-cfg.so.1",
            "libnvidia-nscq.so.550.54.15 libnvidia-nscq.so.2.0",
            "libcuda.so.550.54.15 libcuda.so.1 libcuda.so",
            "libcudadebugger.so.550.54.15 libcudadebugger.so.1",
            "libnvidia-opencl.so.550.54.15 libnvidia-opencl.so.1",
            "libnvidia-gpucomp.so.550.54.15",
            "libnvidia-ptxjitcompiler.so.550.54.15 libnvidia-ptxjitcompiler.so.1",
            "libnvidia-fatbinaryloader.so.550.54.15",
            "libnvidia-allocator.so.550.54.15 libnvidia-allocator.so.1",
            "libnvidia-compiler.so.550.54.15",
            "libnvidia-pkcs11.so.550.54.15",
            "libnvidia-pkcs11-openssl3.so.550.54.15",
            "libnvidia-nvvm.so.550.54.15 libnvidia-nvvm.so.4",
            "libnvidia-tileiras.so.550.54.15",
        ]
    );
    assert_eq!(of_kind(&found, Kind::Binary), BINARIES);
    assert_eq!(of_kind(&found, Kind::Socket), SOCKETS);
    assert_eq!(link_places(&found), [OPENCL]);
    assert_eq!(found.missing, [""; 0]);
}

#[test]
#[ignore = "needs root: only root's files are trusted"]
fn each_capability_has_exactly_its_list() {
    let root = Root::complete();
    let utility = ["nvidia-ml", "nvidia-cfg", "nvidia-nscq"];
    let compute = [
        "cuda",
        "cudadebugger",
        "nvidia-opencl",
        "nvidia-gpucomp",
        "nvidia-ptxjitcompiler",
        "nvidia-fatbinaryloader",
        "nvidia-allocator",
        "nvidia-compiler",
        "nvidia-pkcs11",
        "nvidia-pkcs11-openssl3",
        "nvidia-nvvm",
        "nvidia-tileiras",
    ];
    let video = ["vdpau_nvidia", "nvidia-encode", "nvidia-opticalflow", "nvcuvid"];
    let graphics = [
        "nvidia-gpucomp",
        "nvidia-eglcore",
        "nvidia-glcore",
        "nvidia-tls",
        "nvidia-glsi",
        "nvidia-fbc",
        "nvidia-ifr",
        "nvidia-rtcore",
        "nvidia-glvkspirv",
        "nvidia-cbl",
        "nvoptix",
        "GLX_nvidia",
        "EGL_nvidia",
        "GLESv2_nvidia",
        "GLESv1_CM_nvidia",
        "nvidia-egl-gbm",
        "nvidia-egl-wayland",
    ];
    let all: Vec<&str> = LIBRARIES.iter().map(|(name, _)| *name).collect();
    let (of_utility, of_compute) = BINARIES.split_at(3);
    for (capabilities, expected, binaries, sockets) in [
        ("utility", &utility[..], of_utility, &SOCKETS[..]),
        ("compute", &compute[..], of_compute, &[]),
        ("video", &[&compute[..], &video[..]].concat(), of_compute, &[]),
        ("graphics", &graphics[..], &[], &[]),
        ("display", &graphics[..], &[], &[]),
        ("ngx", &["nvidia-ngx"], &[], &[]),
        ("compat32", &[], &[], &[]),
        ("all", &all[..], &BINARIES[..], &SOCKETS[..]),
    ] {
        let found = root.find(capabilities).unwrap();
        let own: Vec<&str> = found
            .files
            .iter()
            .filter(|file| file.kind == Kind::Library)
            .map(|file| file.names[0].as_str())
            .collect();
        let expected: Vec<String> = expected.iter().map(|library| file_name(library)).collect();
        assert_eq!(own, expected, "{capabilities}");
        assert_eq!(of_kind(&found, Kind::Binary), binaries, "{capabilities}");
        assert_eq!(of_kind(&found, Kind::Socket), sockets, "{capabilities}");
        let of_opencl = own.iter().any(|library| library.starts_with("libnvidia-opencl")).then_some(OPENCL);
        let of_graphics =
            if own.iter().any(|library| library.starts_with("libnvoptix")) { &OF_GRAPHICS[..] } else { &[] };
        let expected: Vec<&str> = of_opencl.into_iter().chain(of_graphics.iter().copied()).collect();
        assert_eq!(link_places(&found), expected, "{capabilities}");
    }
}

#[test]
#[ignore = "needs root: only root's files are trusted"]
fn link_names_of_the_other_capabilities() {
    let found = libraries(&Root::complete().find("video,graphics").unwrap());
    for names in [
        "libvdpau_nvidia.so.550.54.15 libvdpau_nvidia.so.1 libvdpau_nvidia.so",
        "libnvidia-encode.so.550.54.15 libnvidia-encode.so.1 libnvidia-encode.so",
        "libnvidia-opticalflow.so.550.54.15 libnvidia-opticalflow.so.1 libnvidia-opticalflow.so",
        "libnvcuvid.so.550.54.15 libnvcuvid.so.1 libnvcuvid.so",
        "libGLX_nvidia.so.550.54.15 libGLX_nvidia.so.0 libGLX_indirect.so.0",
    ] {
        assert!(found.contains(&names.to_owned()), "{names}: {found:#?}");
    }
}

#[test]
#[ignore = "needs root: only root's files are trusted"]
fn what_is_missing_is_named_alone() {
    let root = Root::new();
    root.libraries(MULTIARCH, &["nvidia-ml", "cuda"]);
    let found = root.find("").unwrap();
    assert_eq!(found.files.len(), 2);
    let of_both = LIBRARIES.iter().take(15).map(|(library, _)| file_name(library));
    let libraries = of_both.filter(|file| !file.contains("-ml.") && !file.contains("libcuda."));
    let sockets = SOCKETS.map(|path| root.path(path).display().to_string());
    let all = libraries.chain(BINARIES.map(str::to_owned)).chain(sockets).chain([OPENCL.to_owned()]);
    assert_eq!(found.missing, all.map(|one| format!("{one} is not there")).collect::<Vec<_>>());
}

/// `/lib64` and `/lib` are links, and `/usr/lib` holds the 32-bit set under the same names.
#[test]
#[cfg(target_arch = "x86_64")]
#[ignore = "needs root: only root's files are trusted"]
fn fedora() {
    let root = Root::new();
    root.link("lib64", "usr/lib64");
    root.link("lib", "usr/lib");
    root.libraries("usr/lib64", &["nvidia-ml", "cuda"]);
    for (library, soname) in
        [("cuda", "libcuda.so.1"), ("nvidia-ptxjitcompiler", "libnvidia-ptxjitcompiler.so.1")]
    {
        root.file(&format!("usr/lib/{}", file_name(library)), &shared_object(&["-m32"], soname));
    }
    let found = root.find("utility,compute,compat32").unwrap();
    let kinds: Vec<(Kind, &str)> = found.files.iter().map(|file| (file.kind, file.path.as_str())).collect();
    assert_eq!(
        kinds,
        [
            (Kind::Library, "usr/lib64/libnvidia-ml.so.550.54.15"),
            (Kind::Library, "usr/lib64/libcuda.so.550.54.15"),
            (Kind::Library32, "usr/lib/libcuda.so.550.54.15"),
            (Kind::Library32, "usr/lib/libnvidia-ptxjitcompiler.so.550.54.15"),
        ]
    );
    assert_eq!(
        of_kind(&found, Kind::Library32)[0],
        "libcuda.so.550.54.15 libcuda.so.1 libcuda.so",
        "32-bit programs look for the same names"
    );
    let passed_over = format!(
        "{} is of another architecture",
        root.path("usr/lib/libnvidia-ptxjitcompiler.so.550.54.15").display()
    );
    assert!(found.missing.contains(&passed_over), "{:#?}", found.missing);
    assert!(found.missing.contains(&"libnvidia-ml.so.550.54.15 (32-bit) is not there".to_owned()));
}

/// Each version in a directory of its own; SONAMEs and programs are links by way of `/etc/alternatives`.
#[test]
#[ignore = "needs root: only root's files are trusted"]
fn debian() {
    let root = Root::new();
    let own = format!("{MULTIARCH}/nvidia/current");
    root.libraries(&own, &["nvidia-ml", "cuda"]);
    root.link(&format!("{MULTIARCH}/libcuda.so.1"), "/etc/alternatives/libcuda.so.1");
    root.link("etc/alternatives/libcuda.so.1", &format!("/{own}/libcuda.so.{VERSION}"));
    root.file("usr/lib/nvidia/current/nvidia-smi", b"\x7fELF");
    root.link("usr/bin/nvidia-smi", "/etc/alternatives/nvidia-smi");
    root.link("etc/alternatives/nvidia-smi", "/usr/lib/nvidia/current/nvidia-smi");
    let found = root.find("").unwrap();
    let expected = [
        format!("{own}/libnvidia-ml.so.550.54.15"),
        format!("{own}/libcuda.so.550.54.15"),
        "usr/bin/nvidia-smi".to_owned(),
    ];
    assert_eq!(paths(&found), expected);
}

#[test]
#[ignore = "needs root: only root's files are trusted"]
fn nixos() {
    let root = Root::new();
    let store = "nix/store/abc-nvidia-x11-550.54.15";
    root.libraries(&format!("{store}/lib"), &["nvidia-ml", "cuda"]);
    root.library(&format!("{store}/lib/vdpau"), "vdpau_nvidia");
    root.file(&format!("{store}/bin/nvidia-smi"), b"\x7fELF");
    root.file(&format!("{store}/share/vulkan/icd.d/nvidia_icd.x86_64.json"), b"{}");
    root.link("run/opengl-driver", "/nix/store/abc-graphics-drivers");
    root.link("nix/store/abc-graphics-drivers/lib", &format!("/{store}/lib"));
    root.link("nix/store/abc-graphics-drivers/share", &format!("/{store}/share"));
    root.link("run/current-system", "/nix/store/abc-nixos");
    root.link("nix/store/abc-nixos/sw/bin/nvidia-smi", &format!("/{store}/bin/nvidia-smi"));
    let found = root.find("utility,video,graphics").unwrap();
    assert_eq!(
        paths(&found),
        [
            "run/opengl-driver/lib/libnvidia-ml.so.550.54.15",
            "run/opengl-driver/lib/libcuda.so.550.54.15",
            "run/opengl-driver/lib/vdpau/libvdpau_nvidia.so.550.54.15",
            "run/current-system/sw/bin/nvidia-smi",
            "run/opengl-driver/share/vulkan/icd.d/nvidia_icd.x86_64.json",
        ]
    );
    assert_eq!(link_places(&found), ["usr/share/vulkan/icd.d/nvidia_icd.x86_64.json"]);
}

/// What is absolute in a driver container means its own root, and the host's files are not its.
#[test]
#[ignore = "needs root: only root's files are trusted"]
fn a_driver_container() {
    let root = Root::at("run/nvidia/driver");
    root.libraries("opt/nvidia/lib", &["nvidia-ml", "cuda"]);
    root.link(MULTIARCH, "/opt/nvidia/lib");
    let host = root.dir.path();
    fs::write(host.join("nvidia-smi"), "").unwrap();
    root.link("usr/bin/nvidia-smi", "../../../../../nvidia-smi");
    root.link("usr/bin/nvidia-debugdump", host.join("nvidia-smi").to_str().unwrap());
    let found = root.find("").unwrap();
    let expected = ["nvidia-ml", "cuda"].map(|library| format!("{MULTIARCH}/{}", file_name(library)));
    assert_eq!(paths(&found), expected, "no program: it would lie outside the root");
}

/// A directory that only the linker of the driver's root knows, as drivers from other sources than the distribution
/// have it: for both architectures, and beside libraries that are where they usually are.
#[test]
#[cfg(target_arch = "x86_64")]
#[ignore = "needs root: only root's files are trusted"]
fn where_the_linker_cache_says() {
    let root = Root::at("run/nvidia/driver");
    root.libraries("opt/nvidia/lib64", &["nvidia-ml", "cuda", "nvidia-eglcore"]);
    root.library("usr/X11R6/lib64", "GLX_nvidia");
    root.library("usr/lib64", "cuda");
    let object = library::shared_object(library::Machine::I386, b"libcuda.so.1");
    root.file(&format!("opt/nvidia/lib/{}", file_name("cuda")), &object);
    root.ldconfig(&["/opt/nvidia/lib64", "/opt/nvidia/lib", "/usr/X11R6/lib64"]);
    let found = root.find("utility,compute,graphics,compat32").unwrap();
    let kinds: Vec<(Kind, &str)> = found.files.iter().map(|file| (file.kind, file.path.as_str())).collect();
    assert_eq!(
        kinds,
        [
            (Kind::Library, "opt/nvidia/lib64/libnvidia-ml.so.1"),
            (Kind::Library, "usr/lib64/libcuda.so.550.54.15"),
            (Kind::Library, "opt/nvidia/lib64/libnvidia-eglcore.so.550.54.15"),
            (Kind::Library, "usr/X11R6/lib64/libGLX_nvidia.so.0"),
            (Kind::Library32, "opt/nvidia/lib/libcuda.so.1"),
        ]
    );
    let names = ["libcuda.so.550.54.15 libcuda.so.1 libcuda.so"];
    assert_eq!(of_kind(&found, Kind::Library32), names);
    // The cache has it for 64-bit programs, which is another library.
    assert!(found.missing.contains(&"libnvidia-ml.so.550.54.15 (32-bit) is not there".to_owned()));
    assert!(
        libraries(&found)
            .contains(&"libGLX_nvidia.so.550.54.15 libGLX_nvidia.so.0 libGLX_indirect.so.0".to_owned())
    );
}

/// Debian's older drivers: what the linker knows is a link by way of `/etc/alternatives` to a directory of theirs.
#[test]
#[ignore = "needs root: only root's files are trusted"]
fn what_a_cached_name_leads_to_has_the_version() {
    let root = Root::new();
    let own = format!("{MULTIARCH}/nvidia/tesla");
    root.libraries(&own, &["nvidia-ml", "cuda"]);
    for library in ["libnvidia-ml.so.1", "libcuda.so.1"] {
        root.link(&format!("{MULTIARCH}/{library}"), &format!("/etc/alternatives/{library}"));
        root.link(&format!("etc/alternatives/{library}"), &format!("/{own}/{library}"));
        root.link(&format!("{own}/{library}"), &format!("{}.{VERSION}", library.trim_end_matches(".1")));
    }
    root.ldconfig(&[]);
    let found = root.find("").unwrap();
    let expected = ["libnvidia-ml.so.1", "libcuda.so.1"].map(|library| format!("{MULTIARCH}/{library}"));
    assert_eq!(paths(&found), expected);
    assert_eq!(libraries(&found)[1], "libcuda.so.550.54.15 libcuda.so.1 libcuda.so");

    // One of another version is not taken, and named where that ends the start.
    fs::rename(root.path(&own).join(file_name("cuda")), root.path(&own).join("libcuda.so.560.35.03"))
        .unwrap();
    fs::remove_file(root.path(&own).join("libcuda.so.1")).unwrap();
    root.link(&format!("{own}/libcuda.so.1"), "libcuda.so.560.35.03");
    assert_eq!(
        root.refused("compute", Exit::Gpu),
        format!(
            "capability compute needs libcuda.so.550.54.15: the loaded driver is 550.54.15, and there is \
             ROOT/{own}/libcuda.so.560.35.03: reload the driver's modules or reboot, which an upgrade of the \
             driver needs"
        )
    );
    // What the cache names may be gone, or out of the root.
    fs::remove_file(root.path(&own).join("libcuda.so.1")).unwrap();
    root.link(&format!("{own}/libcuda.so.1"), "../../../../../../../../../etc/passwd");
    assert!(root.refused("compute", Exit::Gpu).contains(": it is not in "));
    assert_eq!(root.find("utility").unwrap().missing.len(), 7, "and nothing of the cache");
}

/// It says where to look, and what is there is judged like everything else.
#[test]
#[ignore = "needs root: gives a file to another user"]
fn a_cached_library_that_others_could_have_written() {
    let root = Root::new();
    let library = root.library("opt/nvidia", "nvidia-ml");
    root.ldconfig(&["/opt/nvidia"]);
    chown(library, Some(65534), None).unwrap();
    assert!(root.refused("utility", Exit::Untrusted).contains("opt/nvidia/libnvidia-ml.so.1 is not trusted"));
}

/// A cache is not even opened where the directories have all, no error where they have what is required, and
/// what is said where they have not.
#[test]
#[ignore = "needs root: gives a file to another user"]
fn a_linker_cache_that_is_not_to_be_used() {
    let fifo = |path: &Path| mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
    let foreign = |path: &Path| chown(path, Some(65534), None).unwrap();
    let writable = |path: &Path| fs::set_permissions(path, Permissions::from_mode(0o666)).unwrap();
    let no_cache = |path: &Path| fs::write(path, "ld.so-1.7.1").unwrap();
    let large = |path: &Path| fs::File::create(path).unwrap().set_len((4 << 20) + 1).unwrap();
    let cut_off = |path: &Path| fs::write(path, b"glibc-ld.so.cache1.1\xff").unwrap();
    let in_its_place = |path: &Path| {
        fs::remove_file(path).unwrap();
        fifo(path);
    };
    type Spoil<'a> = &'a dyn Fn(&Path);
    let cases: [(Spoil, &str); 6] = [
        (&foreign, " is not trusted: it belongs to uid 65534"),
        (&writable, " is not trusted: others than root may write it"),
        (&in_its_place, " is not trusted: it is not a regular file"),
        (&no_cache, " is not used: it is not a linker cache"),
        (&large, " is not used: it is larger than 4 MiB"),
        (&cut_off, " is not used: it is cut off"),
    ];
    for (spoil, says) in cases {
        let root = Root::complete();
        root.library("opt/nvidia", "nvidia-ml");
        root.ldconfig(&["/opt/nvidia"]);
        let cache = root.path("etc/ld.so.cache");
        let says = format!("{}{says}", cache.display());
        spoil(&cache);
        assert_eq!(root.find("utility,compute,video,graphics,ngx").unwrap().missing, [""; 0], "{says}");
        fs::remove_file(root.path(MULTIARCH).join(file_name("nvidia-cfg"))).unwrap();
        let missing = root.find("utility").unwrap().missing;
        assert_eq!(missing[0], "libnvidia-cfg.so.550.54.15 is not there");
        assert!(missing.len() == 2 && missing[1].starts_with(&says), "{missing:?}");
        fs::remove_file(root.path(MULTIARCH).join(file_name("nvidia-ml"))).unwrap();
        let line = root.find("utility").unwrap_err().to_string();
        assert!(line.contains("it is not in ") && line.contains(&format!("; {says}")), "{line}");
    }
}

#[test]
#[ignore = "needs root: only root's files are trusted"]
fn without_a_required_library() {
    let root = Root::new();
    let install = "install the libraries of driver 550.54.15, or set driver_root in pool.toml";
    assert_eq!(
        root.refused("utility", Exit::Gpu),
        format!(
            "capability utility needs libnvidia-ml.so.550.54.15: no directory of libraries is below ROOT/; {install}"
        )
    );
    root.library("usr/lib64", "nvidia-ml");
    fs::create_dir_all(root.path("usr/lib")).unwrap();
    assert_eq!(
        root.refused("", Exit::Gpu),
        format!(
            "capability compute needs libcuda.so.550.54.15: it is not in ROOT/usr/lib64, ROOT/usr/lib; {install}"
        )
    );
    assert_eq!(libraries(&root.find("utility,graphics").unwrap()).len(), 1, "nobody asked for compute");
    root.file("usr/lib/libcuda.so.550.54.15", b"#!/bin/sh\n");
    assert_eq!(
        root.refused("compute", Exit::Gpu),
        "capability compute needs libcuda.so.550.54.15: ROOT/usr/lib/libcuda.so.550.54.15 is not a \
         little-endian ELF file; reinstall the libraries of driver 550.54.15"
    );
}

#[test]
#[ignore = "needs root: only root's files are trusted"]
fn libraries_of_another_version() {
    let root = Root::new();
    root.library("usr/lib64", "nvidia-ml");
    root.file("usr/lib64/libcuda.so.560.35.03", &shared_object(&[], "libcuda.so.1"));
    root.link("usr/lib64/libcuda.so.1", "libcuda.so.560.35.03");
    assert_eq!(
        root.refused("", Exit::Gpu),
        "capability compute needs libcuda.so.550.54.15: the loaded driver is 550.54.15, and there is \
         ROOT/usr/lib64/libcuda.so.560.35.03: reload the driver's modules or reboot, which an upgrade of the \
         driver needs"
    );
}

#[test]
#[ignore = "needs root: gives a file to another user"]
fn files_that_others_could_have_written() {
    let root = Root::complete();
    let library = root.path(format!("{MULTIARCH}/libnvidia-cfg.so.550.54.15"));
    let of_others = [library.clone(), root.path("usr/bin/nvidia-debugdump"), root.path(OPENCL)];
    for path in of_others {
        chown(&path, Some(65534), None).unwrap();
        let line = root.refused("", Exit::Untrusted);
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        assert!(line.contains(&name) && line.contains("belongs to uid 65534"), "{line}");
        chown(&path, Some(0), None).unwrap();
    }
    fs::set_permissions(&library, Permissions::from_mode(0o664)).unwrap();
    assert!(root.refused("utility", Exit::Untrusted).contains("others than root may write it"));
    fs::remove_file(&library).unwrap();
    mknodat(CWD, &library, FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
    assert!(root.refused("utility", Exit::Untrusted).contains("is not a regular file"), "and does not hang");
}

#[test]
#[ignore = "needs root: only root's files are trusted"]
fn a_soname_is_a_file_name_or_an_error() {
    let root = Root::new();
    let path = format!("{MULTIARCH}/libnvidia-ml.so.550.54.15");
    root.file(&path, &shared_object(&[], "../../../etc/passwd"));
    assert_eq!(
        root.refused("utility", Exit::Gpu),
        format!(
            "ROOT/{path} has the name \"../../../etc/passwd\", which is no file name; reinstall the driver"
        )
    );
}

/// Whoever a daemon runs as can put a link into its directory, to a socket that he may not open.
#[test]
#[ignore = "needs root: only root's files are trusted"]
fn only_a_socket_itself_is_a_daemons_socket() {
    let root = Root::new();
    root.library("usr/lib64", "nvidia-ml");
    root.socket("run/engine.sock");
    root.link("run/nvidia-persistenced/socket", "/run/engine.sock");
    root.file("run/nvidia-fabricmanager/socket", b"");
    let found = root.find("utility").unwrap();
    assert_eq!(of_kind(&found, Kind::Socket), [""; 0]);
    for path in SOCKETS {
        let line = format!("{} is not a socket", root.path(path).display());
        assert!(found.missing.contains(&line), "{:#?}", found.missing);
    }
}

/// Distributions choose between `/usr/share` and `/etc`; loaders look in both, and a link in one will do.
#[test]
#[ignore = "needs root: only root's files are trusted"]
fn configuration_may_be_in_etc() {
    let root = Root::new();
    root.file("etc/vulkan/icd.d/nvidia_icd.json", b"{}");
    let found = root.find("graphics").unwrap();
    assert_eq!(paths(&found), ["etc/vulkan/icd.d/nvidia_icd.json"]);
    assert_eq!(of_kind(&found, Kind::Config), ["nvidia_icd.json"]);
    assert_eq!(link_places(&found), ["usr/share/vulkan/icd.d/nvidia_icd.json"]);
    assert!(found.missing.contains(&"usr/share/glvnd/egl_vendor.d/10_nvidia.json is not there".to_owned()));
}

/// The table in the docs is the one that the hook follows.
#[test]
fn the_docs_list_every_file() {
    let docs = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/driver-files.md")).unwrap();
    let rows: Vec<String> = driver::ITEMS.iter().map(row).collect();
    let table = docs.split("\n## ").next().unwrap();
    let listed: Vec<&str> = table.lines().filter(|line| line.starts_with("| `")).collect();
    assert!(listed == rows, "docs/driver-files.md should have these lines:\n{}", rows.join("\n"));
}

fn row(item: &driver::Item) -> String {
    let file = match item.kind {
        Kind::Library | Kind::Library32 => {
            format!("lib{}.so.{}", item.name, item.version.unwrap_or("<version>"))
        }
        Kind::Binary => item.name.to_owned(),
        Kind::Socket | Kind::Config => format!("/{}", item.name),
    };
    let capabilities = item.capabilities.to_string().replace(',', ", ");
    let required = if item.required { "yes" } else { "" };
    let links: Vec<String> = item.links.iter().map(|link| format!("`{link}`")).collect();
    format!("| `{file}` | {capabilities} | {required} | {} |", links.join(", "))
}
