//! A directory tree as it is, to be compared with what it is later: everything but the times of reading.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// What is at each path of a tree, the root of it included.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot(BTreeMap<PathBuf, String>);

impl Snapshot {
    /// Of everything below `root`, whatever is mounted there.
    pub fn of(root: &Path) -> Self {
        let mut entries = BTreeMap::new();
        add(root, &mut entries);
        Self(entries)
    }

    /// The paths, relative to the root of the tree, that are there now and were not before.
    pub fn new_since(&self, before: &Self) -> Vec<&Path> {
        let root = self.0.keys().next().expect("the root");
        let new = self.0.keys().filter(|path| !before.0.contains_key(*path));
        new.map(|path| path.strip_prefix(root).expect("below the root")).collect()
    }

    /// Fails the test, naming what differs, unless both are equal.
    #[track_caller]
    pub fn assert_is(&self, before: &Self, what: &str) {
        let differ = |path: &&PathBuf| self.0.get(*path) != before.0.get(*path);
        let all = self.0.keys().chain(before.0.keys());
        let lines = all
            .filter(differ)
            .map(|path| format!("{}: {:?}, was {:?}", path.display(), self.0.get(path), before.0.get(path)));
        let lines: Vec<_> = lines.collect();
        assert!(lines.is_empty(), "{what}:\n{}", lines.join("\n"));
    }
}

fn add(path: &Path, entries: &mut BTreeMap<PathBuf, String>) {
    let meta = path.symlink_metadata().expect("metadata");
    let content = if meta.is_symlink() {
        format!("{:?}", fs::read_link(path).expect("a link"))
    } else if meta.is_file() {
        format!("{:?}", fs::read(path).expect("a file"))
    } else if meta.file_type().is_char_device() || meta.file_type().is_block_device() {
        format!("{:x}", meta.rdev())
    } else {
        String::new()
    };
    let line = format!(
        "inode {} mode {:o} owner {}:{} links {} modified {}.{:09} changed {}.{:09} {content}",
        meta.ino(),
        meta.mode(),
        meta.uid(),
        meta.gid(),
        meta.nlink(),
        meta.mtime(),
        meta.mtime_nsec(),
        meta.ctime(),
        meta.ctime_nsec(),
    );
    entries.insert(path.to_owned(), line);
    if meta.is_dir() {
        for entry in fs::read_dir(path).expect("a directory") {
            add(&entry.expect("an entry").path(), entries);
        }
    }
}
