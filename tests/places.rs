//! docs/files.md says what is mounted in a container, and what stays in its root file system: exactly that is.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use common::bundle::{with_dev, without_dev};
use common::client;
use common::container::Builder;
use common::driver::install_all;
use common::host::{DRIVER, Host, make_dir};
use common::mig::whole;
use common::runtime::Runtime;
use common::snapshot::Snapshot;
use common::view::Cgroups;

/// What is in backquotes in the first column of the table below this heading, and above the next one.
fn documented(heading: &str) -> BTreeSet<String> {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/files.md");
    let docs = fs::read_to_string(docs).expect("docs/files.md");
    let (_, below) = docs.split_once(&format!("\n## {heading}\n")).expect("the heading");
    let section = below.split("\n## ").next().expect("a section");
    let cells = section.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    cells.flat_map(|cell| cell.trim_end_matches('`').split("`, `")).map(str::to_owned).collect()
}

/// A path as the docs write it: with `<minor>` for the number of a GPU's node, and so on.
fn generic(path: &str) -> String {
    let path = path.replace(std::env::consts::ARCH, "<arch>");
    let (dir, name) = path.rsplit_once('/').expect("an absolute path");
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let n = match stem {
        _ if stem == name => return keep_arch(&path),
        "nvidia" => "<minor>",
        "card" | "renderD" | "nvidia-cap" => "<n>",
        _ => return keep_arch(&path),
    };
    format!("{dir}/{stem}{n}")
}

/// The name of one of Vulkan's files has the processor in it on every one.
fn keep_arch(path: &str) -> String {
    path.replace("nvidia_icd.<arch>", "nvidia_icd.x86_64")
}

/// A share of one GPU, one of it that a worker has, and a MIG device of another.
const POOL: &str = "[[type]]\nname = \"small\"\nmemory = \"10GiB\"\ncompute = 25\n\
    [[type]]\nname = \"far\"\nmemory = \"1GiB\"\ncompute = 25\nisolation = \"remote\"\n\
    [[type]]\nname = \"mig\"\nmig = \"1g.5gb\"\n[[gpu]]\nproduct = \"*\"\nvgpus = { small = 1, far = 1 }\n";

/// A host on which everything is there that a container can get.
fn host() -> Host {
    client::ready();
    let host = Host::builder(Cgroups::V1).nvml().pool(POOL).build();
    host.set_mig(&host.gpus[0], Some(&[whole("1g.5gb", 1)]));
    install_all(&host.driver_root(), DRIVER);
    host.load_graphics();
    host
}

/// What is in an image, and what it asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Image {
    /// A linker cache and a drop-in directory; GPUs.
    Glibc,
    /// The same, and a C library; a worker.
    Remote,
    /// musl's loader; GPUs.
    Musl,
}

fn furnish(root: &Path, image: Image) {
    if image == Image::Musl {
        make_dir(&root.join("lib"));
        fs::write(root.join(format!("lib/ld-musl-{}.so.1", std::env::consts::ARCH)), "").expect("a loader");
    } else {
        make_dir(&root.join("etc/ld.so.conf.d"));
        fs::write(root.join("etc/ld.so.cache"), "").expect("a cache");
    }
    if image == Image::Remote {
        make_dir(&root.join("lib64"));
        fs::copy("/lib/x86_64-linux-gnu/libc.so.6", root.join("lib64/libc.so.6")).expect("a C library");
    }
}

fn asking(builder: Builder<'_>, image: Image) -> Builder<'_> {
    let (key, value) = if image == Image::Remote { ("vgpu.type", "far") } else { ("vgpu.count", "2") };
    let builder = builder.annotation(key, value).env("NVIDIA_DRIVER_CAPABILITIES", "all");
    builder.with_driver_in_proc().args(&["cat", "/proc/self/mountinfo"])
}

/// Where something is mounted, by a mountinfo: not what is below the one place of the driver's files.
fn mounted(mountinfo: &str) -> BTreeSet<String> {
    let at = mountinfo.lines().map(|line| line.split(' ').nth(4).expect("a mount point"));
    at.filter(|at| !at.starts_with("/usr/local/nvidia/")).map(generic).collect()
}

/// The paths that are new, but for directories above others.
fn stays(before: &Snapshot, after: &Snapshot) -> BTreeSet<String> {
    let new = after.new_since(before);
    let is_above = |path: &Path| new.iter().any(|other| *other != path && other.starts_with(path));
    let ends = new.iter().filter(|path| !is_above(path));
    ends.map(|path| generic(&format!("/{}", path.display()))).collect()
}

#[test]
#[ignore = "needs root: starts containers"]
fn what_is_mounted_and_what_stays_is_in_the_docs() {
    let host = host();
    let (mut all_mounted, mut all_stays) = (BTreeSet::new(), BTreeSet::new());
    for (n, overlay) in [false, false, true, true].into_iter().enumerate() {
        for image in [Image::Glibc, Image::Remote, Image::Musl] {
            let runtime = [Runtime::Runc, Runtime::Crun][n % 2];
            let tweak = if n == 0 { without_dev } else { with_dev };
            let builder = || host.container(runtime).tweak(tweak);
            let plain = builder().with_driver_in_proc().args(&["cat", "/proc/self/mountinfo"]);
            let plain = plain.furnish(|root| furnish(root, image));
            let plain = if overlay { plain.overlay() } else { plain }.build();
            let usual = mounted(&plain.run().ok().stdout);
            let root = host.view().path(plain.root());
            let before = Snapshot::of(&root);
            let has = mounted(&asking(builder().on_root(plain.root()), image).build().run().ok().stdout);
            all_mounted.extend(has.difference(&usual).cloned());
            let after = Snapshot::of(&root);
            all_stays.extend(stays(&before, &after));
            if overlay && image != Image::Musl {
                assert_ne!(fs::read(root.join("etc/ld.so.cache")).expect("the cache"), b"");
                all_stays.insert("/etc/ld.so.cache".to_owned());
            }
            let again = asking(builder().on_root(plain.root()), image).build();
            again.run().ok();
            assert_eq!(Snapshot::of(&root).new_since(&after), [""; 0].map(Path::new));
        }
    }
    assert_eq!(all_mounted, documented("In the container"));
    assert_eq!(all_stays, documented("In the container's root file system"));
}
