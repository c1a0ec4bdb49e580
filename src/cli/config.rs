//! `vgpu config init` and `vgpu config check`. Reads and writes the pool file, nothing else.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::cli::printed;
use crate::config::{self, CutGpu, GpuEntry, Kind, PoolFile, Share, Table, VgpuType};
use crate::error::{Error, Exit, OrExit, Result};
use crate::gpu::{Inventory, MigDevice};
use crate::remote;

/// Arguments of `vgpu config init`.
#[derive(Clone, Debug, clap::Args)]
pub struct InitArgs {
    /// Where to write it, `-` for standard output [default: the pool file]
    pub output: Option<PathBuf>,
    /// Replace a file that is there
    #[arg(long)]
    pub force: bool,
    /// Where the driver's dev/, proc/driver/nvidia and lib… are found
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub driver_root: String,
}

/// Writes a pool file made from what the host has, to `args.output` or else to `pool_file`.
/// `inventory` is given the driver root.
///
/// # Errors
/// [`Exit::Usage`] for a driver root that is no absolute path, [`Exit::PoolFile`] when there is a
/// file already, [`Exit::Io`] when it cannot be written; and those of `inventory`.
pub fn init(
    args: &InitArgs,
    pool_file: &Path,
    inventory: impl FnOnce(&Path) -> Result<Inventory>,
    out: &mut impl Write,
) -> Result<()> {
    if !args.driver_root.starts_with('/') {
        return Err(Error::new(Exit::Usage, "--driver-root takes the absolute path of a directory"));
    }
    let text = config::propose(&inventory(Path::new(&args.driver_root))?, &args.driver_root);
    let target = args.output.as_deref().unwrap_or(pool_file);
    if target == Path::new("-") {
        return said(out, &text);
    }
    match write(target, &text, args.force) {
        Err(e) if e.kind() == ErrorKind::AlreadyExists && !args.force => {
            let line = format!("{} is there already; `--force` replaces it", target.display());
            return Err(Error::new(Exit::PoolFile, line));
        }
        written => written.or_exit(Exit::Io, || format!("cannot write {}", target.display()))?,
    }
    let check = config::command(target, "config check");
    said(out, &format!("{} is written; look it through, then run `{check}`\n", target.display()))
}

/// Puts the whole file there at once: a hook that starts meanwhile reads the old one or the new.
fn write(target: &Path, text: &str, replace: bool) -> io::Result<()> {
    if let Some(parent) = target.parent() {
        DirBuilder::new().recursive(true).mode(0o755).create(parent)?;
    }
    let mut temporary = target.as_os_str().to_owned();
    temporary.push(format!(".{}.tmp", std::process::id()));
    let temporary = Path::new(&temporary);
    let file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(temporary)?;
    let done = fill(file, text).and_then(|()| match replace {
        true => fs::rename(temporary, target),
        // Unlike a rename, a link never takes the place of a file that came up meanwhile.
        false => fs::hard_link(temporary, target),
    });
    if done.is_err() || !replace {
        let _ = fs::remove_file(temporary);
    }
    done
}

/// The mode is set again: the umask may have taken the readers away.
fn fill(mut file: File, text: &str) -> io::Result<()> {
    file.write_all(text.as_bytes())?;
    file.set_permissions(Permissions::from_mode(0o644))?;
    file.sync_all()
}

/// Says everything that is wrong with the pool file, or what it gives. `inventory` is given the
/// file as far as it could be read; it is not asked when the file is not to be trusted.
///
/// # Errors
/// [`Exit::PoolFile`] when there is none or something is wrong with it, [`Exit::Untrusted`] when
/// somebody else than root can write it, and those of `inventory`.
pub fn check(
    path: &Path,
    inventory: impl FnOnce(&PoolFile) -> Result<Inventory>,
    out: &mut impl Write,
) -> Result<()> {
    let (text, untrusted) = text_and_trust(path)?;
    let (file, mut problems) = config::parse_recoverable(&text);
    // driver_root says which library is loaded: nobody but root may choose that.
    let host = untrusted
        .map_or_else(|| inventory(&file).map_err(|e| e.context("the host's GPUs are not known")), Err);
    let table = host.map(|host| file.cut(&host).map_err(|more| problems.extend(more)));
    problems.sort();
    for problem in &problems {
        said(out, &problem.report(path, &text))?;
    }
    if !problems.is_empty() {
        if let Err(also) = table {
            said(out, &format!("{also}\n"))?;
        }
        return Err(wrong(path, problems.len()));
    }
    // The inner error has become problems, and there are none.
    let table = table?.unwrap_or_default();
    said(out, &(not_installed(&file) + &warnings(&file, &table) + &summary(path, &file, &table)))
}

/// Why containers of remote types would not start, if there are such types.
fn not_installed(file: &PoolFile) -> String {
    let remote = file.types.iter().find(|kind| kind.is_remote());
    let why = remote.and_then(|kind| Some((&kind.name, remote::find().err()?)));
    why.map_or(String::new(), |(name, e)| format!("warning: no container of type {name} would start: {e}\n"))
}

fn wrong(path: &Path, n: usize) -> Error {
    let (path, s) = (path.display(), if n == 1 { "" } else { "s" });
    Error::new(Exit::PoolFile, format!("{path} has {n} problem{s}; correct them and check again"))
}

/// The file's text, and why it is not to be trusted, if so: what is wrong inside is said then too.
fn text_and_trust(path: &Path) -> Result<(String, Option<Error>)> {
    let untrusted = match config::load(path) {
        Err(error) if error.exit == Exit::Untrusted => error,
        loaded => return Ok((loaded?, None)),
    };
    // Only to be talked about. A FIFO must not block here either.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    match file.ok().filter(|file| file.metadata().is_ok_and(|it| it.is_file())) {
        Some(file) => Ok((config::text_of(file, path)?, Some(untrusted))),
        None => Err(untrusted),
    }
}

/// What is right, and yet perhaps not meant.
fn warnings(file: &PoolFile, table: &Table) -> String {
    let mut out = String::new();
    let mut warn = |line: String| {
        let _ = writeln!(out, "warning: {line}");
    };
    for entry in &table.absent {
        warn(format!("no GPU of this host matches {entry}"));
    }
    if table.gpus.iter().all(|gpu| gpu.vgpus.is_empty()) {
        warn("no GPU is cut, so every request is refused".into());
    }
    for cut in &table.gpus {
        let entry = file.gpus.iter().find(|entry| entry.select.matches(&cut.gpu));
        entry.into_iter().for_each(|entry| mig_warnings(entry, cut, table).into_iter().for_each(&mut warn));
    }
    let unknown =
        |cut: &&CutGpu| cut.gpu.memory.is_none() && cut.gpu.mig.is_none() && !file.policy.overcommit;
    for CutGpu { gpu, .. } in table.gpus.iter().filter(unknown) {
        warn(format!("the memory of {} is not known, so the sum of its vGPUs was not checked", gpu.uuid));
    }
    for kind in file.types.iter().filter(|kind| offered(table, kind) == 0) {
        let default = file.request.default_type.as_ref() == Some(&kind.name);
        let so = if default { "; it is the default_type, so a plain count is refused" } else { "" };
        warn(match &kind.is {
            Kind::Share(_) => format!("no GPU is cut into type {}{so}", kind.name),
            Kind::Mig(profile) => format!("no MIG device here is a {profile}, of type {}{so}", kind.name),
        });
    }
    out
}

/// What the entry and the MIG mode of a GPU that it is about have to do with each other.
fn mig_warnings(entry: &GpuEntry, CutGpu { gpu, vgpus }: &CutGpu, table: &Table) -> Vec<String> {
    let uuid = &gpu.uuid;
    let Some(devices) = &gpu.mig else {
        let line = entry.at.line;
        let nothing = format!(
            "{uuid} gives nothing: it is not in MIG mode, and its [[gpu]] in line {line} has no vgpus"
        );
        return entry.vgpus.is_empty().then_some(nothing).into_iter().collect();
    };
    let mut lines = Vec::new();
    // Where the entry's vgpus are for nobody. With others of the product it cuts those.
    let is_cut = |cut: &CutGpu| cut.gpu.mig.is_none() && entry.select.matches(&cut.gpu);
    if !entry.vgpus.is_empty() && !table.gpus.iter().any(is_cut) {
        let line = entry.vgpus_at.line;
        lines.push(format!(
            "{uuid} is in MIG mode, so its vGPUs are its MIG devices, not the vgpus in line {line}"
        ));
    }
    if devices.is_empty() {
        lines.push(format!("{uuid} gives nothing: it is in MIG mode and has no MIG devices"));
    }
    let typed = |device: &MigDevice| vgpus.iter().any(|vgpu| vgpu.mig.as_ref() == Some(device));
    let untyped: BTreeSet<_> = devices.iter().filter(|device| !typed(device)).map(|d| &d.profile).collect();
    lines.extend(untyped.iter().map(|profile| {
        format!("{uuid} has MIG devices that no type is of; add one with mig = \"{profile}\"")
    }));
    lines
}

fn offered(table: &Table, kind: &VgpuType) -> usize {
    table.gpus.iter().flat_map(|gpu| &gpu.vgpus).filter(|vgpu| vgpu.id.kind == kind.name).count()
}

/// How many GPUs, and how many vGPUs of which type.
fn summary(path: &Path, file: &PoolFile, table: &Table) -> String {
    let vgpus: usize = table.gpus.iter().map(|gpu| gpu.vgpus.len()).sum();
    let (gpus, shown) = (table.gpus.len(), path.display());
    let gives = if vgpus == 0 { "is right, but gives no vGPU here" } else { "is right" };
    let mut out = format!("{shown} {gives}; GPUs: {gpus}, vGPUs: {vgpus}\n");
    for kind in &file.types {
        let (name, n) = (&kind.name, offered(table, kind));
        let _ = match &kind.is {
            Kind::Share(Share { memory, compute, isolation }) => {
                let by = if isolation.is_remote() { ", by workers" } else { "" };
                writeln!(out, "  {name}: {n} of {memory} and {compute}{by}")
            }
            Kind::Mig(profile) => writeln!(out, "  {name}: {n} of MIG profile {profile}"),
        };
    }
    out
}

fn said(out: &mut impl Write, text: &str) -> Result<()> {
    printed(out.write_all(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, Mode};

    use super::*;
    use crate::config::tests::{gpu, in_mig_mode};

    const GOOD: &str = "[request]\ndefault_type = \"large\"\n[[type]]\nname = \"small\"\nmemory = \"10GiB\"\ncompute = 25\n\
        [[type]]\nname = \"large\"\nmemory = \"20GiB\"\ncompute = 50\n[[gpu]]\nproduct = \"NVIDIA A*\"\nvgpus = { small = 4 }\n";

    fn host(memory: Option<u64>) -> Inventory {
        Inventory { gpus: vec![gpu(0, "NVIDIA A100", memory)], ..Inventory::default() }
    }

    /// A directory that only its owner may write, and a pool file in it.
    fn pool_file(text: &str) -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pool.toml");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        (directory, path)
    }

    /// What `check` prints, with the path cut to its name, and how it ends.
    fn checked(text: &str, host: Result<Inventory>) -> (String, Result<()>) {
        let (_directory, path) = pool_file(text);
        let mut out = Vec::new();
        let end = check(&path, |_| host, &mut out);
        (String::from_utf8(out).unwrap().replace(path.to_str().unwrap(), "pool.toml"), end)
    }

    fn exit(end: Result<()>) -> Option<Exit> {
        end.err().map(|error| error.exit)
    }

    #[test]
    #[ignore = "needs root: a pool file is trusted only when it is root's"]
    fn a_right_file_is_summed_up_with_what_may_not_be_meant() {
        let (report, end) = checked(GOOD, Ok(host(Some(40 << 30))));
        assert_eq!(exit(end), None);
        insta::assert_snapshot!(report, @r#"
        warning: no GPU is cut into type large; it is the default_type, so a plain count is refused
        pool.toml is right; GPUs: 1, vGPUs: 4
          small: 4 of 10GiB and 25%
          large: 0 of 20GiB and 50%
        "#);
        let (report, end) = checked(GOOD, Ok(host(None)));
        assert_eq!(exit(end), None);
        insta::assert_snapshot!(report, @r#"
        warning: the memory of GPU-00000000-0000-0000-0000-000000000000 is not known, so the sum of its vGPUs was not checked
        warning: no GPU is cut into type large; it is the default_type, so a plain count is refused
        pool.toml is right; GPUs: 1, vGPUs: 4
          small: 4 of 10GiB and 25%
          large: 0 of 20GiB and 50%
        "#);
        let (report, _) = checked(&format!("policy.overcommit = true\n{GOOD}"), Ok(host(None)));
        assert!(!report.contains("memory"), "{report}");
        let (report, end) = checked(GOOD, Ok(Inventory::default()));
        assert_eq!(exit(end), None);
        insta::assert_snapshot!(report, @r#"
        warning: no GPU of this host matches product = "NVIDIA A*"
        warning: no GPU is cut, so every request is refused
        warning: no GPU is cut into type small
        warning: no GPU is cut into type large; it is the default_type, so a plain count is refused
        pool.toml is right, but gives no vGPU here; GPUs: 0, vGPUs: 0
          small: 0 of 10GiB and 25%
          large: 0 of 20GiB and 50%
        "#);
        let (report, end) = checked("", Ok(host(None)));
        assert_eq!(exit(end), None);
        insta::assert_snapshot!(report, @r#"
        warning: no GPU is cut, so every request is refused
        pool.toml is right, but gives no vGPU here; GPUs: 0, vGPUs: 0
        "#);
    }

    #[test]
    #[ignore = "needs root: a pool file is trusted only when it is root's"]
    fn what_mig_mode_and_the_file_have_to_do_with_each_other() {
        let devices =
            [("1g.5gb", 5 << 30), ("3g.20gb", 20 << 30), ("1g.5gb", 5 << 30), ("3g.20gb", 20 << 30)];
        let gpus = vec![
            in_mig_mode(0, "NVIDIA A100", &devices),
            in_mig_mode(1, "NVIDIA A100", &[]),
            gpu(2, "NVIDIA H100", Some(80 << 30)),
        ];
        let text = GOOD.replace("default_type = \"large\"", "")
            + "[[type]]\nname = \"mig\"\nmig = \"1g.5gb\"\n[[type]]\nname = \"all\"\nmig = \"7g.40gb\"\n\
               [[gpu]]\nproduct = \"NVIDIA H*\"\n";
        let (report, end) = checked(&text, Ok(Inventory { gpus, ..Inventory::default() }));
        assert_eq!(exit(end), None);
        insta::assert_snapshot!(report, @r#"
        warning: GPU-00000000-0000-0000-0000-000000000000 is in MIG mode, so its vGPUs are its MIG devices, not the vgpus in line 13
        warning: GPU-00000000-0000-0000-0000-000000000000 has MIG devices that no type is of; add one with mig = "3g.20gb"
        warning: GPU-00000001-0000-0000-0000-000000000000 is in MIG mode, so its vGPUs are its MIG devices, not the vgpus in line 13
        warning: GPU-00000001-0000-0000-0000-000000000000 gives nothing: it is in MIG mode and has no MIG devices
        warning: GPU-00000002-0000-0000-0000-000000000000 gives nothing: it is not in MIG mode, and its [[gpu]] in line 21 has no vgpus
        warning: no GPU is cut into type small
        warning: no GPU is cut into type large
        warning: no MIG device here is a 7g.40gb, of type all
        pool.toml is right; GPUs: 3, vGPUs: 2
          small: 0 of 10GiB and 25%
          large: 0 of 20GiB and 50%
          mig: 2 of MIG profile 1g.5gb
          all: 0 of MIG profile 7g.40gb
        "#);
    }

    /// Of one product some GPUs are cut and some are in MIG mode, by one entry: nothing in that is not meant.
    #[test]
    #[ignore = "needs root: a pool file is trusted only when it is root's"]
    fn what_init_writes_for_a_host_with_some_gpus_in_mig_mode_is_not_warned_of() {
        let mig = in_mig_mode(1, "NVIDIA A100", &[("1g.5gb", 5 << 30)]);
        let gpus = vec![gpu(0, "NVIDIA A100", Some(40 << 30)), mig];
        let host = Inventory { gpus, ..Inventory::default() };
        let (report, end) = checked(&config::propose(&host, "/"), Ok(host));
        assert_eq!(exit(end), None);
        insta::assert_snapshot!(report, @r#"
        pool.toml is right; GPUs: 2, vGPUs: 5
          small: 4 of 10GiB and 25%
          1g.5gb: 1 of MIG profile 1g.5gb
        "#);
    }

    #[test]
    #[ignore = "needs root: a pool file is trusted only when it is root's"]
    fn what_is_wrong_in_itself_and_on_this_host_is_said_together() {
        let text = GOOD.replace("small = 4", "small = 5") + "[policy]\nplacement = 1\n";
        let (report, end) = checked(&text, Ok(host(Some(40 << 30))));
        insta::assert_snapshot!(report, @r#"
        pool.toml:13:9: 5 small of 10GiB is 50GiB, but GPU-00000000-0000-0000-0000-000000000000 at 0000:00:00.0 ("NVIDIA A100") has 40GiB
           13 | vgpus = { small = 5 }
              |         ^^^^^^^^^^^^^ cut fewer or smaller vGPUs, or set overcommit = true in [policy]
        pool.toml:13:9: 5 small of 25% is 125% of a GPU's compute
           13 | vgpus = { small = 5 }
              |         ^^^^^^^^^^^^^ cut fewer or smaller vGPUs, or set overcommit = true in [policy]
        pool.toml:15:13: placement cannot be 1
           15 | placement = 1
              |             ^ it is "pack" or "spread"
        "#);
        let error = end.unwrap_err();
        assert_eq!(error.exit, Exit::PoolFile);
        assert!(error.to_string().ends_with("has 3 problems; correct them and check again"), "{error}");
    }

    #[test]
    #[ignore = "needs root: a pool file is trusted only when it is root's"]
    fn without_the_hosts_gpus_the_file_alone_is_checked() {
        let dead = || Err(Error::new(Exit::Gpu, "the driver does not answer"));
        let (report, end) = checked(GOOD, dead());
        assert_eq!(report, "");
        assert_eq!(end.unwrap_err().to_string(), "the host's GPUs are not known: the driver does not answer");
        let (report, end) = checked(&GOOD.replace("25", "0"), dead());
        assert!(
            report.ends_with("\nthe host's GPUs are not known: the driver does not answer\n"),
            "{report}"
        );
        assert_eq!(exit(end), Some(Exit::PoolFile));
    }

    #[test]
    fn a_file_that_is_not_trusted_is_read_but_never_acted_on() {
        let (_directory, path) = pool_file(&GOOD.replace("25", "0"));
        fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        let mut out = Vec::new();
        let never = |_: &PoolFile| -> Result<Inventory> { panic!("driver_root was believed") };
        assert_eq!(exit(check(&path, never, &mut out)), Some(Exit::PoolFile));
        let report = String::from_utf8(out).unwrap();
        assert!(report.contains("compute cannot be 0") && report.contains("is not trusted"), "{report}");
        fs::write(&path, GOOD).unwrap();
        assert_eq!(exit(check(&path, never, &mut io::sink())), Some(Exit::Untrusted));
        assert_eq!(exit(check(Path::new("/dev"), never, &mut io::sink())), Some(Exit::Untrusted));
        fs::remove_file(&path).unwrap();
        rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
        assert_eq!(exit(check(&path, never, &mut io::sink())), Some(Exit::Untrusted));
    }

    fn args(output: Option<&Path>, force: bool) -> InitArgs {
        InitArgs { output: output.map(Path::to_owned), force, driver_root: "/".into() }
    }

    #[test]
    fn init_writes_what_check_accepts_and_replaces_nothing_unasked() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new/pool.toml");
        let run = |force| init(&args(None, force), &path, |_| Ok(host(Some(40 << 30))), &mut io::sink());
        run(false).unwrap();
        let written = fs::read_to_string(&path).unwrap();
        assert_eq!(config::parse(&written).unwrap().gpus.len(), 1);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o644);
        fs::write(&path, "mine").unwrap();
        let refused = run(false).unwrap_err();
        assert_eq!(refused.exit, Exit::PoolFile);
        assert!(refused.to_string().ends_with("is there already; `--force` replaces it"), "{refused}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
        run(true).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), written);
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert_eq!(exit(run(true)), Some(Exit::Io));
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "a temporary file is left");
    }

    #[test]
    fn everybody_may_read_it_whatever_the_umask_took() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_permissions(Permissions::from_mode(0o600)).unwrap();
        fill(file.reopen().unwrap(), "").unwrap();
        assert_eq!(file.as_file().metadata().unwrap().permissions().mode() & 0o7777, 0o644);
    }

    #[test]
    fn init_can_print() {
        let mut out = Vec::new();
        let given = |root: &Path| {
            assert_eq!(root, Path::new("/"));
            Ok(host(None))
        };
        init(&args(Some(Path::new("-")), false), Path::new("/nowhere"), given, &mut out).unwrap();
        assert!(config::parse(&String::from_utf8(out).unwrap()).is_ok());
        let relative = InitArgs { driver_root: "driver".into(), ..args(None, false) };
        let end = init(&relative, Path::new("/nowhere"), |_| Ok(host(None)), &mut io::sink());
        assert_eq!(exit(end), Some(Exit::Usage));
    }
}
