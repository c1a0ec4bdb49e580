//! An image of a distribution's: this machine's loader and C library on top of a busybox tree, with a linker cache made
//! by its `ldconfig`.

use std::fs;
use std::path::Path;

use super::command::program;
use super::host::{Host, make_dir};
use super::library::{Machine, shared_object};
use super::view::script;

/// Puts such an image's files into a busybox tree, the libraries into this directory; among them a stub of
/// `libcuda.so.1`, and a `libown.so.1`. `look` in it tells which files are found by name.
pub fn furnish(host: &Host, root: &Path, libraries: &str) {
    let copy = |from: &Path, to: &str| {
        let to = root.join(to);
        make_dir(to.parent().expect("a parent"));
        host.view().run(&["cp", "-L", &from.to_string_lossy(), to.to_str().expect("UTF-8")]).ok();
    };
    copy(Path::new("/lib64/ld-linux-x86-64.so.2"), "lib64/ld-linux-x86-64.so.2");
    copy(Path::new("/lib/x86_64-linux-gnu/libc.so.6"), &format!("{libraries}/libc.so.6"));
    copy(&program("ldconfig"), "sbin/ldconfig");
    let source = script("look.c");
    let look = root.join("bin/look");
    host.view().run(&["gcc", "-o", look.to_str().expect("UTF-8"), source.to_str().expect("UTF-8")]).ok();
    for name in ["libcuda.so.1", "libown.so.1"] {
        let object = shared_object(Machine::X86_64, name.as_bytes());
        fs::write(root.join(libraries).join(name), object).expect("a library");
    }
    make_dir(&root.join("etc/ld.so.conf.d"));
    fs::write(root.join("etc/ld.so.conf"), "include /etc/ld.so.conf.d/*.conf\n").expect("ld.so.conf");
    fs::write(root.join("etc/ld.so.conf.d/image.conf"), format!("/{libraries}\n")).expect("a drop-in");
    host.view().run(&["ldconfig", "-r", root.to_str().expect("UTF-8")]).ok();
}
