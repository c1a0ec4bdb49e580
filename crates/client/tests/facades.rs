//! What stands in a container, as its programs meet it: C programs that find the libraries through the dynamic linker.

mod common;

use std::collections::{BTreeSet, HashSet};
use std::io::Read;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output};

use common::{SONAMES, Worker, compiled, installed, said, symbols};

/// Runs the C program `descriptors.c` to do `what`.
fn descriptors(what: &str, environment: impl FnOnce(&mut Command, &Path)) -> Output {
    let directory = installed();
    let mut program = Command::new(compiled("descriptors.c", directory.path(), &[]));
    environment(program.arg(what), directory.path());
    program.output().unwrap()
}

/// With the libraries where programs look for them.
fn in_path(program: &mut Command, directory: &Path) {
    program.env("LD_LIBRARY_PATH", directory);
}

/// There is no worker: descriptors want none.
fn done(output: &Output) {
    let (out, err) = said(output);
    assert_eq!(out, "done\n");
    assert!(
        err.lines().all(|line| line.starts_with("vgpu: no worker at ")) && err.lines().count() <= 1,
        "{err}"
    );
}

/// Of a worker that is not there any more, and of one that lets nobody in.
#[test]
fn why_nothing_can_be_computed_is_said_once() {
    let directory = tempfile::tempdir().unwrap();
    let said_of = |socket: &Path| {
        let at = |program: &mut Command, directory: &Path| {
            in_path(program, directory);
            program.env("VGPU_WORKER", socket);
        };
        said(&descriptors("both", at)).1
    };
    let gone = directory.path().join("gone");
    drop(UnixListener::bind(&gone).unwrap());
    assert_eq!(
        said_of(&gone),
        "vgpu: the container's worker is gone, and is not replaced; nothing can be computed before a new start\n"
    );
    let full = directory.path().join("full");
    let listener = UnixListener::bind(&full).unwrap();
    let refuses = std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        // All of its first words: what is not read would be an error of the socket's.
        client.read_exact(&mut [0; 8]).unwrap();
    });
    let line = said_of(&full);
    refuses.join().unwrap();
    assert!(line.contains("it serves as many as it can, or is of another build"), "{line}");
    assert_eq!(line.lines().count(), 1, "{line}");
}

#[test]
fn descriptors_of_both_versions_through_the_dynamic_linker() {
    done(&descriptors("each", in_path));
}

#[test]
fn two_libraries_in_one_process_share_one_client() {
    done(&descriptors("both", in_path));
}

#[test]
fn a_preloaded_library_answers_to_its_name_whatever_the_search_path() {
    let preloaded = |program: &mut Command, directory: &Path| {
        let libraries = ["libcudnn.so.8", "libcudnn.so.9"].map(|soname| directory.join(soname));
        let [v8, v9] = libraries.map(|library| library.display().to_string());
        program.env("LD_PRELOAD", format!("{v8}:{v9}"));
    };
    done(&descriptors("both", preloaded));
}

/// Making the file that client and worker share would kill it. Without one it is as without a worker.
#[test]
fn who_may_not_write_files_as_large_as_what_is_shared_has_descriptors_and_no_worker() {
    let (worker, directory) = (Worker::start(1 << 20), installed());
    for most in [4096, 0] {
        let mut program = Command::new("sh");
        program.arg("-c").arg(format!("ulimit -f {most}; exec \"$@\"")).arg("sh");
        program.arg(compiled("descriptors.c", directory.path(), &[])).arg("each");
        in_path(&mut program, directory.path());
        let output = program.env("VGPU_WORKER", worker.socket()).output().unwrap();
        done(&output);
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(err.contains("RLIMIT_FSIZE"), "{err}");
    }
}

#[test]
fn descriptors_cross_threads_and_their_room_comes_back() {
    done(&descriptors("threads", in_path));
}

#[test]
fn threads_call_until_they_have_ended_and_what_they_kept_comes_back() {
    done(&descriptors("ending", in_path));
}

/// Where the C library has room for them beside the program's own, and where it has none (GNU libc's
/// `glibc.rtld.optional_static_tls`).
#[test]
fn what_threads_keep_is_found_by_either_way_of_the_loaders() {
    for room in [512, 0] {
        done(&descriptors("first", |program, directory| {
            in_path(program, directory);
            program.env("GLIBC_TUNABLES", format!("glibc.rtld.optional_static_tls={room}"));
        }));
    }
}

#[test]
fn ten_million_descriptors_cross_threads_in_the_same_memory() {
    done(&descriptors("millions", in_path));
}

#[test]
fn the_client_outlives_the_libraries_that_want_it() {
    done(&descriptors("reopened", in_path));
}

#[test]
fn a_forked_child_begins_nothing_and_breaks_nothing() {
    done(&descriptors("forked", in_path));
    done(&descriptors("forked-before", in_path));
}

#[test]
fn what_is_not_served_says_so_and_is_named_once() {
    let output = descriptors("unserved", in_path);
    let (out, err) = said(&output);
    assert_eq!(out, "done\n");
    let lines: Vec<&str> = err.lines().collect();
    assert_eq!(lines.len(), 3, "{err}");
    assert!(lines[0].contains("libcudnn.so.8: cudnnCTCLoss"), "{err}");
    assert!(lines[1].contains("libcudnn.so.9: cudnnCTCLoss"), "{err}");
    assert!(lines[2].contains("libcudnn.so.9: cudnnCreateRNNDescriptor"), "{err}");
}

#[test]
fn every_symbol_is_there_with_its_version() {
    let directory = installed();
    for soname in SONAMES {
        let mut nm = Command::new("nm");
        nm.args(["-D", "--defined-only"]).arg(directory.path().join(soname));
        let (exported, _) = said(&nm.output().unwrap());
        let version = if soname == "libcuda.so.1" { String::new() } else { format!("@@{soname}") };
        let mut is: Vec<&str> =
            exported.lines().filter_map(|line| line.split_once(" T ")).map(|(_, name)| name).collect();
        let mut wanted: Vec<String> =
            symbols(soname).lines().map(|name| format!("{name}{version}")).collect();
        is.sort_unstable();
        wanted.sort_unstable();
        assert!(wanted.len() > 200 && is == wanted, "{soname}");
    }
}

#[test]
fn a_program_that_was_linked_wants_the_version_and_finds_it() {
    let directory = installed();
    let program =
        compiled("linked.c", directory.path(), &["libcudnn.so.9", "libcublas.so.12", "libcuda.so.1"]);
    let (wants, _) = said(&Command::new("nm").arg("-D").arg(&program).output().unwrap());
    assert!(wants.contains("cudnnCreateTensorDescriptor@libcudnn.so.9"), "{wants}");
    // All symbols are looked for at once, as in programs that are linked so.
    let output =
        Command::new(program).env("LD_LIBRARY_PATH", directory.path()).env("LD_BIND_NOW", "1").output();
    assert_eq!(said(&output.unwrap()).0, "0 15 801\n");
}

#[test]
fn a_program_with_kernels_starts_and_is_told_that_they_are_not_launched() {
    let directory = installed();
    let libraries = ["libcudart.so.12", "libcublas.so.12", "libcuda.so.1"];
    let mut program = Command::new(compiled("kernels.c", directory.path(), &libraries));
    let (out, err) = said(&program.env("LD_LIBRARY_PATH", directory.path()).output().unwrap());
    let wanted = "0: 2 1 1, 3 1 1, 4, 5\n\
                  801 801 0 cudaErrorNotSupported\n\
                  unrecognized error code 12040 8 1 CUBLAS_STATUS_NOT_SUPPORTED unknown status\n\
                  0 CUDA_ERROR_NOT_SUPPORTED 1 nothing\n";
    assert_eq!(out, wanted);
    assert_eq!(err.lines().count(), 1, "{err}");
    assert!(err.contains("libcudart.so.12: cudaLaunchKernel is not served"), "{err}");
}

/// What the client exports: its functions for each library, by their names there, and what is no library's.
fn exported(directory: &Path) -> ([BTreeSet<String>; SONAMES.len()], Vec<String>) {
    let mut nm = Command::new("nm");
    nm.args(["-D", "--defined-only"]).arg(directory.join("libvgpu_client.so"));
    let (exported, _) = said(&nm.output().unwrap());
    let names = exported.lines().filter_map(|line| line.split_once(" T ")).map(|(_, name)| name.to_owned());
    let mut others: Vec<String> = names.collect();
    let libraries = SONAMES.map(|soname| {
        let prefix = format!("vgpu_{}_", soname[3..].replace(".so.", "_"));
        let (ours, rest) = others.drain(..).partition(|name: &String| name.starts_with(&prefix));
        others = rest;
        let names = ours.iter().map(|name| name[prefix.len()..].to_owned());
        names.filter(|name| name != "unserved").collect()
    });
    (libraries, others)
}

/// Else no program could ever call it. The one that is no library's is found by its name.
#[test]
fn each_function_of_the_client_has_its_name_in_a_facade() {
    let (libraries, others) = exported(installed().path());
    for (soname, served) in SONAMES.into_iter().zip(libraries) {
        let names = symbols(soname);
        let names: HashSet<&str> = names.lines().collect();
        let unknown: Vec<_> = served.iter().filter(|name| !names.contains(name.as_str())).collect();
        assert!(unknown.is_empty(), "{soname}: {unknown:?}");
    }
    assert_eq!(others, ["vgpu_counters"]);
}

#[test]
fn the_functions_that_are_served_are_those_of_the_docs() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/functions.md");
    let docs = std::fs::read_to_string(docs).unwrap();
    let (libraries, _) = exported(installed().path());
    for (soname, served) in SONAMES.into_iter().zip(libraries) {
        let (_, section) = docs.split_once(&format!("## {soname}\n")).unwrap();
        let section = section.split("\n## ").next().unwrap();
        let named: BTreeSet<String> = section.split('`').skip(1).step_by(2).map(Into::into).collect();
        let missing: Vec<_> = served.symmetric_difference(&named).collect();
        assert!(
            missing.is_empty(),
            "{soname}: in docs/functions.md or in the client, and not in the other: {missing:?}"
        );
    }
}
