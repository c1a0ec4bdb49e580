//! A container's root file system: a busybox tree.

use std::fs;
use std::os::unix::fs::{lchown, symlink};
use std::path::{Path, PathBuf};

use super::command::program;
use super::host::{Host, make_dir};
use super::view::script;

/// What containers of the tests run.
const APPLETS: [&str; 24] = [
    "[", "cat", "chmod", "cp", "echo", "env", "false", "find", "head", "id", "kill", "ls", "mkdir", "mknod",
    "mount", "ps", "rm", "sed", "sh", "sleep", "stat", "test", "true", "umount",
];

/// Makes the tree at `root`, all of it owned by `owner`.
pub fn plain(host: &Host, root: &Path, owner: u32) {
    for dir in ["bin", "dev", "etc", "opt", "proc", "root", "run", "sys", "tmp", "usr/lib", "var"] {
        make_dir(&root.join(dir));
    }
    // A process of its own copies: a descriptor open for writing here could be inherited by a
    // child of another thread, and the file could not be executed then (ETXTBSY).
    let busybox = program("busybox");
    let target = root.join("bin/busybox");
    host.view().run(&["cp", &busybox.to_string_lossy(), target.to_str().expect("UTF-8")]).ok();
    for applet in APPLETS {
        symlink("busybox", root.join("bin").join(applet)).expect("symlink");
    }
    fs::copy(script("probe.sh"), root.join("bin/probe")).expect("the probe");
    own(root, owner);
}

/// Gives a tree to a user and the group of the same number, links themselves included.
pub fn own(path: &Path, owner: u32) {
    lchown(path, Some(owner), Some(owner)).unwrap_or_else(|e| panic!("chown {}: {e}", path.display()));
    if path.symlink_metadata().expect("metadata").is_dir() {
        for entry in fs::read_dir(path).expect("a directory") {
            own(&entry.expect("an entry").path(), owner);
        }
    }
}

/// Mounts, in the host's view, an overlay with `lower` below a fresh writable layer in `dir`.
pub fn overlay(host: &Host, lower: &Path, dir: &Path) -> PathBuf {
    let [upper, work, merged] = ["upper", "work", "merged"].map(|name| dir.join(name));
    [&upper, &work, &merged].into_iter().for_each(|dir| make_dir(dir));
    let options =
        format!("lowerdir={},upperdir={},workdir={}", lower.display(), upper.display(), work.display());
    let target = merged.to_str().expect("UTF-8");
    host.view().run(&["mount", "-t", "overlay", "overlay", "-o", &options, target]).ok();
    merged
}
