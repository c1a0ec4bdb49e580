//! What a pool file may say, and what is said when it says anything else.

use std::path::Path;

use proptest::prelude::*;
use proptest::sample::{Index, subsequence};

use super::*;
use crate::config::{Place, SAMPLE};
use crate::driver::Capability;
use crate::types::{Bytes, PciAddress};

const UUID: &str = "GPU-5a6b7c8d-0000-1111-2222-333344445555";

const SMALL: &str = "[[type]]\nname = \"small\"\nmemory = \"10GiB\"\ncompute = 25\n";

/// Every problem as `line:column message; remedy`.
fn problems(text: &str) -> Vec<String> {
    let lines = |p: &Problem| format!("{}:{} {}; {}", p.at.line, p.at.column, p.message, p.remedy);
    parse(text).map_or_else(|problems| problems.iter().map(lines).collect(), |_| Vec::new())
}

fn kind(name: &str, memory: u64, compute: i64, isolation: Isolation) -> VgpuType {
    let compute = Percent::try_from(compute).unwrap();
    let share = Share { memory: Bytes(memory), compute, isolation };
    VgpuType { name: name.parse().unwrap(), is: Kind::Share(share) }
}

#[test]
fn an_empty_file_is_the_defaults() {
    assert_eq!(parse(""), Ok(PoolFile::default()));
    assert_eq!(parse("# nothing\n[request]\n[policy]\n"), Ok(PoolFile::default()));
}

#[test]
fn the_sample_shows_the_defaults() {
    let file = parse(SAMPLE).unwrap();
    assert_eq!(file.types, [kind("small", 10 << 30, 25, Isolation::None)]);
    assert_eq!(file.gpus[0].select, Select::Product("NVIDIA A100*".into()));
    assert_eq!(PoolFile { types: vec![], gpus: vec![], ..file }, PoolFile::default());
    // What is a comment in it, because it has no default, is right too.
    let whole = SAMPLE.replace("\n# default_type", "\ndefault_type").replace("\n# max_", "\nmax_");
    let request = parse(&whole).unwrap().request;
    assert_eq!(request.default_type.unwrap().as_str(), "small");
    assert_eq!(request.max_per_container.unwrap().get(), 8);
}

#[test]
fn everything_can_be_said() {
    let text = format!(
        r#"
state_dir = "/var/lib/vgpu"
driver_root = "/run/nvidia/driver"
debug = true
request = {{ default_type = "b.c", allow_env = false, max_per_container = 0x10 }}

[driver]
capabilities = "utility"
allow = " utility,video "

[policy]
placement = "spread"
lock_timeout = "500ms"
overcommit = true
allow_other_access = true

[[type]]
name = "small"
memory = "512MiB"
compute = 1

[[type]]
name = "b.c"
memory = "40GB"
compute = 100

[[gpu]]
uuid = "{UUID}"
vgpus = {{ small = 1024, "b.c" = 1 }}

[[gpu]]
pci = "00000000:3B:00.0"
[gpu.vgpus]
"b.c" = 1
small = 2

[[gpu]]
product = "*"
vgpus = {{}}
"#
    );
    let entry = |select, vgpus: &[(&str, u32)], at, vgpus_at| GpuEntry {
        select,
        vgpus: vgpus.iter().map(|(kind, n)| (kind.parse().unwrap(), *n)).collect(),
        at,
        vgpus_at,
    };
    let place = |line, column, width| Place { line, column, width };
    let expected = PoolFile {
        state_dir: "/var/lib/vgpu".into(),
        driver_root: "/run/nvidia/driver".into(),
        debug: true,
        request: RequestPolicy {
            default_type: Some("b.c".parse().unwrap()),
            allow_env: false,
            max_per_container: NonZeroU32::new(16),
        },
        driver: Grant {
            default: Capabilities::of(&[Capability::Utility]),
            allow: Capabilities::of(&[Capability::Utility, Capability::Compute, Capability::Video]),
        },
        policy: Policy {
            placement: Placement::Spread,
            lock_timeout: Duration::from_millis(500),
            overcommit: true,
            allow_other_access: true,
        },
        types: vec![
            kind("small", 512 << 20, 1, Isolation::None),
            kind("b.c", 40_000_000_000, 100, Isolation::None),
        ],
        gpus: vec![
            entry(
                Select::Uuid(UUID.parse().unwrap()),
                &[("small", 1024), ("b.c", 1)],
                place(28, 8, 42),
                place(29, 9, 27),
            ),
            entry(
                Select::Pci("0000:3b:00.0".parse().unwrap()),
                &[("b.c", 1), ("small", 2)],
                place(32, 7, 18),
                place(33, 1, 11),
            ),
            entry(Select::Product("*".into()), &[], place(38, 11, 3), place(39, 9, 2)),
        ],
    };
    assert_eq!(parse(&text), Ok(expected));
}

#[test]
fn everything_that_is_wrong_is_said_at_once() {
    let text = r#"
state_dir = "run/vgpu"
statedir = "/run/vgpu"

[request]
default_type = "medium"
allow_env = "yes"
max_per_container = 0

[policy]
placement = "packed"
lock_timeout = "1h"

[[type]]
name = "small"
memory = 10
compute = 250

[[type]]
name = "small"
memory = "10 GiB"

[[gpu]]
uuid = "GPU-1"
pci = "0000:3b:00.0"
vgpus = { small = 0, large = 2 }

[[gpu]]
vgpus = 4
"#;
    let report: String =
        parse(text).unwrap_err().iter().map(|p| p.report(Path::new("pool.toml"), text)).collect();
    insta::assert_snapshot!(report, @r#"
    pool.toml:2:13: state_dir cannot be "run/vgpu"
        2 | state_dir = "run/vgpu"
          |             ^^^^^^^^^^ it is the absolute path of a directory, which begins with /
    pool.toml:3:1: unknown key "statedir"
        3 | statedir = "/run/vgpu"
          | ^^^^^^^^ the keys here are state_dir, driver_root, debug, request, driver, policy, type, gpu
    pool.toml:6:16: no type is named "medium"
        6 | default_type = "medium"
          |                ^^^^^^^^ define it in a [[type]], or use one of small
    pool.toml:7:13: allow_env cannot be "yes"
        7 | allow_env = "yes"
          |             ^^^^^ it is true or false, without quotes
    pool.toml:8:21: max_per_container cannot be 0
        8 | max_per_container = 0
          |                     ^ it is a whole number above 0; leave it out for no limit
    pool.toml:11:13: placement cannot be "packed"
       11 | placement = "packed"
          |             ^^^^^^^^ it is "pack" or "spread"
    pool.toml:12:16: lock_timeout cannot be "1h"
       12 | lock_timeout = "1h"
          |                ^^^^ it is a whole number and s or ms, from "1ms" to "60s", like "10s"
    pool.toml:16:10: memory cannot be 10
       16 | memory = 10
          |          ^^ memory is a whole number above 0 and one of B, KiB, MiB, GiB, TiB, kB, MB, GB, TB, like "10GiB"
    pool.toml:17:11: compute cannot be 250
       17 | compute = 250
          |           ^^^ a percentage is a whole number from 1 to 100
    pool.toml:19:1: this type has no compute
       19 | [[type]]
          | ^^^^^^^^ add compute = 25
    pool.toml:20:8: type small is already in line 15
       20 | name = "small"
          |        ^^^^^^^ keep one of the two
    pool.toml:21:10: memory cannot be "10 GiB"
       21 | memory = "10 GiB"
          |          ^^^^^^^^ memory is a whole number above 0 and one of B, KiB, MiB, GiB, TiB, kB, MB, GB, TB, like "10GiB"
    pool.toml:23:1: this gpu has uuid and pci
       23 | [[gpu]]
          | ^^^^^^^ keep one of them
    pool.toml:24:8: uuid cannot be "GPU-1"
       24 | uuid = "GPU-1"
          |        ^^^^^^^ a GPU UUID looks like GPU-5a6b7c8d-0000-1111-2222-333344445555 (see `nvidia-smi -L`)
    pool.toml:26:19: "small" cannot be 0
       26 | vgpus = { small = 0, large = 2 }
          |                   ^ it is a whole number from 1 to 1024
    pool.toml:26:22: no type is named "large"
       26 | vgpus = { small = 0, large = 2 }
          |                      ^^^^^ define it in a [[type]], or use one of small
    pool.toml:28:1: this gpu has no uuid, pci or product
       28 | [[gpu]]
          | ^^^^^^^ add one of them; `nvidia-smi -L` shows UUIDs and products
    pool.toml:29:9: vgpus cannot be 4
       29 | vgpus = 4
          |         ^ it says how many of each type, like { small = 4 }
    "#);
}

#[test]
fn each_value_has_its_rule() {
    let value = |line: &str| problems(&format!("{line}\n{SMALL}"));
    let in_type = |line: &str| {
        let key = line.split(' ').next().unwrap();
        let others = SMALL.lines().filter(|l| !l.starts_with(key)).collect::<Vec<_>>().join("\n");
        problems(&format!("{others}\n{line}\n"))
    };
    let in_gpu = |line: &str| problems(&format!("{SMALL}[[gpu]]\nproduct = \"*\"\nvgpus = {line}\n"));
    let select = |line: &str| problems(&format!("{SMALL}[[gpu]]\n{line}\nvgpus = {{ small = 4 }}\n"));
    let one = |problems: Vec<String>, part: &str| {
        assert!(problems.len() == 1 && problems[0].contains(part), "{part}: {problems:?}");
    };
    for bad in [r#""""#, r#""run""#, r#""./run""#, r#""/a\u0000""#, r#""/a\nb""#, "1", "[]", "{}"] {
        one(value(&format!("state_dir = {bad}")), "1:13 state_dir cannot be");
        one(value(&format!("driver_root = {bad}")), "1:15 driver_root cannot be");
    }
    for bad in ["0", "-1", "1.5", "\"8\"", "4294967296", "99999999999999999999", "true", "1979-05-27"] {
        one(value(&format!("request.max_per_container = {bad}")), "1:29 max_per_container cannot be");
    }
    for bad in ["0", "1", "\"true\"", "[true]"] {
        one(value(&format!("debug = {bad}")), "1:9 debug cannot be");
        one(value(&format!("request.allow_env = {bad}")), "1:21 allow_env cannot be");
        one(value(&format!("policy.overcommit = {bad}")), "1:21 overcommit cannot be");
        one(value(&format!("policy.allow_other_access = {bad}")), "1:29 allow_other_access cannot be");
    }
    for bad in ["\"\"", "\"sm all\"", "1", "\"-\""] {
        one(value(&format!("request.default_type = {bad}")), "1:24 default_type cannot be");
        one(in_type(&format!("name = {bad}")), "4:8 name cannot be");
    }
    for bad in [
        "10",
        "\"10\"",
        "\"0ms\"",
        "\"61s\"",
        "\"60001ms\"",
        "\"-1s\"",
        "\"+1s\"",
        "\"1.5s\"",
        "\"1 s\"",
        "\"1m\"",
        "\"s\"",
        "\"99999999999999999999s\"",
        "\"1s\\n\"",
    ] {
        one(value(&format!("policy.lock_timeout = {bad}")), "1:23 lock_timeout cannot be");
    }
    for bad in ["\"\"", "\",\"", "\"cuda\"", "\"utility compute\"", "[\"utility\"]", "true"] {
        one(value(&format!("driver.capabilities = {bad}")), "1:23 capabilities cannot be");
        one(value(&format!("driver.allow = {bad}")), "1:16 allow cannot be");
    }
    for bad in ["\"Pack\"", "\"\"", "1"] {
        one(value(&format!("policy.placement = {bad}")), "1:20 placement cannot be");
    }
    for bad in ["10", "\"10\"", "\"10gib\"", "\"1.5GiB\"", "\"0GiB\"", "\"99999999999TiB\"", "[]"] {
        one(in_type(&format!("memory = {bad}")), "4:10 memory cannot be");
    }
    for bad in ["0", "101", "-1", "25.0", "\"25%\"", "\"25\"", "9223372036854775808"] {
        one(in_type(&format!("compute = {bad}")), "4:11 compute cannot be");
    }
    for bad in ["0", "1025", "-1", "1.0", "\"4\"", "[4]", "true"] {
        one(in_gpu(&format!("{{ small = {bad} }}")), "7:19 \"small\" cannot be");
    }
    for bad in ["4", "\"small\"", "[\"small\"]", "[{ small = 4 }]"] {
        one(in_gpu(bad), "7:9 vgpus cannot be");
    }
    for bad in
        [r#"uuid = "GPU-*""#, "pci = \"3b:00.0\"", "product = \"\"", "uuid = 1", "pci = {}", "product = []"]
    {
        one(select(bad), " cannot be");
    }
    one(value("request = 1"), "1:11 request cannot be 1; it is a table");
    one(value("[[policy]]"), "policy cannot be an array; it is a table");
    one(problems("[type]\nname = \"small\""), "1:1 type cannot be a table; it is a list of tables");
    one(problems("gpu = [1]"), "1:8 gpu cannot be 1; it is a table");
    one(
        in_gpu("{ a.b = 4 }"),
        "\"a\" cannot be a table; it is a count; a type name with dots goes in quotes",
    );
    one(
        in_gpu("{ large = 4 }"),
        "7:11 no type is named \"large\"; define it in a [[type]], or use one of small",
    );
}

#[test]
fn what_is_allowed_has_what_is_given_by_default() {
    assert_eq!(
        problems("[driver]\nallow = \"utility\"\ncapabilities = \"display\"\n"),
        [
            "2:9 allow leaves out graphics,display, which is in capabilities (\"graphics,display\"); add it, or set capabilities to less"
        ]
    );
    assert_eq!(problems("[driver]\nallow = \"utility\"\ncapabilities = \"utility\"\n"), [""; 0]);
}

#[test]
fn what_is_not_allowed_is_not_given_by_default_either() {
    let by_default = |allow: &str| parse(&format!("[driver]\nallow = \"{allow}\"\n")).unwrap().driver.default;
    assert_eq!(by_default("utility,graphics").to_string(), "utility");
    assert_eq!(by_default("video").to_string(), "compute");
    assert_eq!(by_default("all").to_string(), "utility,compute");
    assert_eq!(
        problems("[driver]\nallow = \"graphics\"\n"),
        [
            "2:9 allow has nothing of utility,compute, which a container gets that names none; say in capabilities what it gets instead"
        ]
    );
}

#[test]
fn foreign_text_is_cut_and_escaped() {
    let one = |text: &str| problems(text).concat();
    assert!(one(&format!("\"\\u001b\\n{}\" = 1", "x".repeat(4000))).len() < 500);
    assert!(!one("\"\\u001b\" = 1").contains('\u{1b}'));
    assert!(one(&format!("request.max_per_container = {}", "9".repeat(4000))).len() < 500);
    assert!(one(&format!("state_dir = \"\\u001b{}\"", "x".repeat(4000))).len() < 500);
}

#[test]
fn names_and_gpus_are_given_once() {
    let gpu = |select: &str| format!("[[gpu]]\n{select}\nvgpus = {{ small = 1 }}\n");
    assert_eq!(
        problems(&format!("{SMALL}{SMALL}")),
        ["6:8 type small is already in line 2; keep one of the two"]
    );
    let twice = |first: &str, second: &str| problems(&format!("{SMALL}{}{}", gpu(first), gpu(second)));
    let uuid = format!("uuid = \"{UUID}\"");
    assert_eq!(twice(&uuid, &uuid), [format!("9:8 gpu {uuid} is already in line 6; keep one of the two")]);
    let (short, long) = ("pci = \"0000:3b:00.0\"", "pci = \"00000000:3B:00.0\"");
    assert_eq!(twice(long, short), [format!("9:7 gpu {short} is already in line 6; keep one of the two")]);
    assert_eq!(twice(&uuid, short), [""; 0]);
}

#[test]
fn a_broken_line_hides_no_other_problem_and_makes_none_up() {
    let starts = |text: &str, expected: &[&str]| {
        let found = problems(text);
        let same = found.iter().zip(expected).all(|(found, start)| found.starts_with(start));
        assert!(found.len() == expected.len() && same, "{found:#?}");
    };
    let gpu = "[[gpu]]\nproduct = \"*\"\nvgpus = { small = 1 }\n";
    // One problem is enough for a line: what was read from it is nothing.
    let text = format!("state_dir = run\n[[type]]\nname = \"small\nmemory = \"1GiB\"\ncompute = 0\n{gpu}");
    starts(&text, &["1:13 this is not TOML: ", "3:14 this is not TOML: ", "5:11 compute cannot be 0"]);
    // The type is lost with its first line: nobody is told that there is no type of that name.
    let text =
        format!("[[type]\nname = \"small\"\nmemory = \"1GiB\"\ncompute = 1\n{gpu}[policy]\nplacement = 1\n");
    starts(&text, &["1:8 this is not TOML: ", "9:13 placement cannot be 1"]);
    // Nor that a list whose table was torn begins twice.
    let text = format!("[policy\nplacement = \"pack\"\n{SMALL}{}", SMALL.replace("small", "large"));
    starts(&text, &["1:8 this is not TOML: "]);
    let text = format!("{SMALL}compute = 50\n[policy]\nplacement = 1\n");
    starts(&text, &["5:1 this key is there already; keep one of the two", "7:13 placement cannot be 1"]);
}

#[test]
fn what_could_be_read_is_kept_for_further_checks() {
    let text = format!(
        "{SMALL}[[type]]\nname = \"large\"\nmemory = 1\ncompute = 50\n[[gpu]]\nproduct = \"*\"\nvgpus = {{ small = 3, large = 1 }}\n"
    );
    let (file, problems) = parse_recoverable(&text);
    assert_eq!((file.types.len(), file.gpus[0].vgpus.len(), problems.len()), (1, 2, 1));
}

/// A pool file as its author means it, and one way of writing it down.
fn written() -> impl Strategy<Value = (PoolFile, String)> {
    let names = prop::collection::btree_set("[a-zA-Z0-9][a-zA-Z0-9._-]{0,8}", 1..5);
    let names = names.prop_map(|names| names.into_iter().collect::<Vec<_>>()).prop_shuffle();
    let sizes = prop::collection::vec((1..1u64 << 44, 1..=100i64), 5);
    let cuts = prop::collection::vec((any::<Index>(), prop::collection::vec(1..=MAX_COUNT, 5)), 0..5);
    let policy = (any::<bool>(), any::<bool>(), any::<bool>(), 1..=60_000u64, any::<Option<Index>>());
    let most = prop::option::of(1..u32::MAX);
    (names, sizes, cuts, policy, most, "/[a-z./ ]{0,12}")
        .prop_flat_map(|(names, sizes, cuts, policy, most, dir)| {
            let kinds = subsequence(names.clone(), 0..=names.len()).prop_shuffle();
            (Just((names, sizes, cuts, policy, most, dir)), prop::collection::vec(kinds, 5))
        })
        .prop_map(|((names, sizes, cuts, policy, most, dir), kinds)| {
            let isolation = |m: u64, c: i64| match c % 3 {
                0 if Bytes(m) <= WORKERS => Isolation::Remote,
                _ => Isolation::None,
            };
            let types: Vec<_> =
                names.iter().zip(&sizes).map(|(n, (m, c))| kind(n, *m, *c, isolation(*m, *c))).collect();
            let (pack, overcommit, other, millis, default) = policy;
            let gpus = cuts.iter().enumerate().map(|(i, (how, counts))| GpuEntry {
                select: select_of(i, *how),
                vgpus: kinds[i].iter().zip(counts).map(|(name, n)| (name.parse().unwrap(), *n)).collect(),
                at: Place::default(),
                vgpus_at: Place::default(),
            });
            let file = PoolFile {
                state_dir: dir.into(),
                request: RequestPolicy {
                    default_type: default.map(|i| types[i.index(types.len())].name.clone()),
                    allow_env: other,
                    max_per_container: most.and_then(NonZeroU32::new),
                },
                debug: pack,
                driver: Grant {
                    default: Capabilities::of(&Capability::ALL[..1 + millis as usize % 7]),
                    ..Grant::default()
                },
                policy: Policy {
                    placement: if pack { Placement::Pack } else { Placement::Spread },
                    lock_timeout: Duration::from_millis(millis),
                    overcommit,
                    allow_other_access: other,
                },
                gpus: gpus.collect(),
                types,
                ..PoolFile::default()
            };
            let text = write(&file);
            (file, text)
        })
}

fn select_of(i: usize, how: Index) -> Select {
    match how.index(3) {
        0 => Select::Uuid(format!("GPU-5a6b7c8d-0000-1111-2222-33334444555{i}").parse().unwrap()),
        1 => Select::Pci(format!("0000:0{i}:00.0").parse::<PciAddress>().unwrap()),
        _ => Select::Product(format!("NVIDIA \"{i}\" é*")),
    }
}

fn write(file: &PoolFile) -> String {
    let PoolFile { state_dir, debug, request, driver, policy, types, gpus, .. } = file;
    let placement = if policy.placement == Placement::Pack { "pack" } else { "spread" };
    let mut text = format!(
        "state_dir = {state_dir:?}\ndebug = {debug}\n[driver]\nallow = 'all'\ncapabilities = '{}'\n[policy]\nplacement = '{placement}'\nlock_timeout = '{}ms'\novercommit = {}\nallow_other_access = {}\n[request]\nallow_env = {}\n",
        driver.default,
        policy.lock_timeout.as_millis(),
        policy.overcommit,
        policy.allow_other_access,
        request.allow_env,
    );
    if let Some(name) = &request.default_type {
        text += &format!("default_type = '{name}'\n");
    }
    if let Some(most) = request.max_per_container {
        text += &format!("max_per_container = {most}\n");
    }
    for GpuEntry { select, vgpus, .. } in gpus {
        let cuts: Vec<_> = vgpus.iter().map(|(name, n)| format!("'{name}' = {n}")).collect();
        text += &format!("[[gpu]]\nvgpus = {{ {} }}\n{select}\n", cuts.join(", "));
    }
    for VgpuType { name, is } in types {
        text += &match is {
            Kind::Share(Share { memory, compute, isolation }) => {
                let isolation = if isolation.is_remote() { "remote" } else { "none" };
                let (memory, compute) = (memory.to_string(), compute.get());
                format!(
                    "[[type]]\ncompute = {compute}\nname = '{name}'\nisolation = '{isolation}'\nmemory = '{memory}'\n"
                )
            }
            Kind::Mig(profile) => format!("[[type]]\nmig = '{profile}'\nname = '{name}'\n"),
        };
    }
    text
}

/// Pieces that a pool file is made of, so that random text is near to one.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "\\PC{0,4}",
        prop::sample::select(vec![
            "[[type]]\n",
            "[[gpu]]\n",
            "[request]\n",
            "[policy]\n",
            "[driver]\n",
            "allow = ",
            "gpu = ",
            "type = ",
            "vgpus = ",
            "name = ",
            "memory = ",
            "mig = ",
            "\"1g.10gb\"",
            "compute = ",
            "uuid = ",
            "product = ",
            "state_dir = ",
            "{",
            "}",
            "[",
            "]",
            "\"",
            "'''",
            "\n",
            "\r\n",
            "\t",
            " = ",
            ".",
            ",",
            "#",
            "small",
            "\"small\"",
            "\"10GiB\"",
            "25",
            "é",
            "\u{0}",
            "\u{feff}",
            "1e999",
            "0x",
            "1979-05-27",
        ])
        .prop_map(str::to_owned),
    ];
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn a_right_file_says_what_its_author_meant((file, text) in written()) {
        let mut read = parse(&text).map_err(|p| TestCaseError::fail(format!("{p:?}\n{text}")))?;
        for entry in &mut read.gpus {
            (entry.at, entry.vgpus_at) = (Place::default(), Place::default());
        }
        prop_assert_eq!(read, file, "{}", text);
    }

    #[test]
    fn any_text_is_read_and_reported_without_a_panic(text in prop_oneof![any::<String>(), pieces()]) {
        let (_, problems) = parse_recoverable(&text);
        for problem in problems {
            let report = problem.report(Path::new("pool.toml"), &text);
            prop_assert_eq!(report.lines().count(), 3, "{}", report);
            prop_assert!(!problem.line(Path::new("pool.toml")).contains(char::is_control));
        }
    }
}

#[test]
fn a_type_says_how_its_vgpus_are_isolated() {
    let of = |line: &str| match parse(&format!("{SMALL}{line}")).unwrap().types[0].is {
        Kind::Share(share) => share.isolation,
        Kind::Mig(_) => unreachable!(),
    };
    assert_eq!(of(""), Isolation::None);
    assert_eq!(of("isolation = \"none\""), Isolation::None);
    assert_eq!(of("isolation = \"remote\""), Isolation::Remote);
    let rule = "it is \"none\" or \"remote\"";
    for wrong in ["\"mps\"", "\"\"", "true"] {
        let found = problems(&format!("{SMALL}isolation = {wrong}\n"));
        assert_eq!(found, [format!("5:13 isolation cannot be {wrong}; {rule}")]);
    }
    let most = |memory: &str| {
        let small = SMALL.replace("10GiB", memory) + "isolation = \"remote\"\n";
        problems(&small)
    };
    assert_eq!(most("8TiB"), [""; 0]);
    let wrong = "3:10 memory cannot be 9TiB where isolation is \"remote\"; a worker has 8TiB at most";
    assert_eq!(most("9TiB"), [wrong]);
    let mig = problems(&format!("{MIG}isolation = \"remote\"\n"));
    assert_eq!(
        mig,
        ["4:13 isolation cannot be \"remote\"; MIG devices are isolated as they are; leave it out"]
    );
}

const MIG: &str = "[[type]]\nname = \"m\"\nmig = \"1g.10gb\"\n";

#[test]
fn a_type_of_mig_devices() {
    let file = parse(&format!("request.default_type = \"m\"\n{MIG}[[gpu]]\nproduct = \"*\"\n")).unwrap();
    assert_eq!(file.types[0].is, Kind::Mig("1g.10gb".parse().unwrap()));
    assert_eq!((&file.gpus[0].vgpus[..], file.gpus[0].vgpus_at), (&[][..], file.gpus[0].at));
    let both = parse(&format!("{MIG}{SMALL}[[gpu]]\nproduct = \"*\"\nvgpus = {{ small = 4 }}\n")).unwrap();
    assert_eq!(both.gpus[0].vgpus.len(), 1);
}

#[test]
fn what_a_type_of_mig_devices_cannot_say() {
    let rule = "a MIG profile looks like 1g.10gb (see `nvidia-smi -L`)";
    assert_eq!(problems(&MIG.replace("1g", "g")), [format!("3:7 mig cannot be \"g.10gb\"; {rule}")]);
    let fixed = "the MIG profile says it; leave it out";
    assert_eq!(
        problems(&(MIG.to_owned() + "memory = \"10GiB\"\ncompute = 10\n")),
        [format!("4:10 memory cannot be \"10GiB\"; {fixed}"), format!("5:11 compute cannot be 10; {fixed}")]
    );
    let twice = MIG.to_owned() + &MIG.replace("\"m\"", "\"n\"");
    assert_eq!(problems(&twice), ["6:7 mig 1g.10gb is already in line 3; keep one of the two"]);
    assert_eq!(
        problems(&format!("{MIG}[[gpu]]\nproduct = \"*\"\nvgpus = {{ m = 4 }}\n")),
        [
            "6:11 type m is of MIG devices, which no GPU is cut into here; leave it out: every MIG device of its profile is one"
        ]
    );
    assert_eq!(problems(&format!("{MIG}[[gpu]]\nproduct = \"*\"\nvgpus = 4\n")).len(), 1);
    let uncut = format!("{SMALL}[[gpu]]\nproduct = \"*\"\n");
    assert_eq!(problems(&uncut), ["5:1 this gpu has no vgpus; add vgpus = { small = 4 }"]);
}
