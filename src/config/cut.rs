//! [`PoolFile`] and the host's GPUs to [`Table`]. Touches nothing.

use std::collections::HashMap;
use std::fmt;

use super::problem::Problem;
use super::{CutGpu, GpuEntry, Isolation, Kind, Offered, PoolFile, Select, Share, Table, Vgpu};
use crate::error::quoted;
use crate::gpu::{Gpu, Inventory, MigDevice};
use crate::types::{Bytes, GpuUuid, Part, TypeName, VgpuId};

/// GPUs that an entry cuts, and the line of that entry.
type Taken<'i> = HashMap<&'i GpuUuid, usize>;

impl PoolFile {
    /// Cuts the host's GPUs as the file says. An entry without a GPU is no error, and neither is a GPU in MIG mode,
    /// which is not cut, or one without MIG devices: one GPU must not stop the containers on the others.
    ///
    /// # Errors
    /// Every GPU that two entries match, and, unless overcommit is allowed, every entry that cuts
    /// more memory or compute from a GPU than it has. Memory is compared only where it is known.
    pub fn cut(&self, inventory: &Inventory) -> Result<Table, Vec<Problem>> {
        let mut table = Table::default();
        let mut problems = Vec::new();
        let mut taken = Taken::new();
        for entry in &self.gpus {
            let matched: Vec<&Gpu> = inventory.gpus.iter().filter(|gpu| entry.select.matches(gpu)).collect();
            problems.extend(matched_twice(entry, &matched, &taken));
            if !self.policy.overcommit {
                problems.extend(self.too_much_memory(entry, &matched));
                problems.extend(self.too_much_compute(entry));
            }
            taken.extend(matched.iter().map(|gpu| (&gpu.uuid, entry.at.line)));
            if matched.is_empty() {
                table.absent.push(entry.select.to_string());
            }
            table.gpus.extend(matched.into_iter().map(|gpu| self.cut_gpu(entry, gpu)));
        }
        if problems.is_empty() { Ok(table) } else { Err(problems) }
    }

    /// The types that some GPU of the table gives, in the file's order.
    pub fn offered<'a>(&'a self, table: &Table) -> Vec<Offered<'a>> {
        let offered = |name: &'a TypeName| {
            let vgpus = table.gpus.iter().flat_map(|gpu| &gpu.vgpus).filter(|vgpu| vgpu.id.kind == *name);
            let least = vgpus.min_by_key(|vgpu| vgpu.memory)?;
            let Vgpu { memory, compute, isolation, .. } = *least;
            Some(Offered { name, memory, compute, isolation })
        };
        self.types.iter().filter_map(|kind| offered(&kind.name)).collect()
    }

    /// Is a vGPU of one of these types a worker's? Then each of them is ([`crate::request::Request::want`]).
    pub fn is_remote(&self, kinds: &[TypeName]) -> bool {
        self.types.iter().any(|kind| kinds.contains(&kind.name) && kind.is_remote())
    }

    fn cut_gpu(&self, entry: &GpuEntry, gpu: &Gpu) -> CutGpu {
        let vgpus = match &gpu.mig {
            Some(devices) => self.mig_devices(gpu, devices),
            None => self.parts(entry).flat_map(|part| shares(gpu, part)).collect(),
        };
        CutGpu { gpu: gpu.clone(), vgpus }
    }

    /// The MIG devices that some type is of.
    fn mig_devices(&self, gpu: &Gpu, devices: &[MigDevice]) -> Vec<Vgpu> {
        let mut vgpus = Vec::new();
        for kind in &self.types {
            let Kind::Mig(profile) = &kind.is else { continue };
            let of_it = devices.iter().filter(|device| device.profile == *profile);
            vgpus.extend(of_it.map(|device| mig_vgpu(gpu, &kind.name, device)));
        }
        vgpus
    }

    /// How many shares of which type. Every type is there in a file that was read without a problem.
    fn parts<'a>(&'a self, entry: &'a GpuEntry) -> impl Iterator<Item = (u32, &'a TypeName, Share)> {
        let named = |name: &TypeName| self.types.iter().find(move |kind| kind.name == *name);
        entry.vgpus.iter().filter_map(move |(name, n)| match named(name)?.is {
            Kind::Share(share) => Some((*n, name, share)),
            Kind::Mig(_) => None,
        })
    }

    /// Of the matched GPUs that are cut the one with least memory decides.
    fn too_much_memory(&self, entry: &GpuEntry, matched: &[&Gpu]) -> Option<Problem> {
        let cut = matched.iter().filter(|gpu| gpu.mig.is_none());
        let (has, gpu) = cut.filter_map(|gpu| Some((gpu.memory?, gpu))).min_by_key(|(memory, _)| *memory)?;
        let sum = self.parts(entry).map(|(n, _, share)| share.memory.0.saturating_mul(n.into()));
        let sum = Bytes(sum.fold(0, u64::saturating_add));
        let figures = || self.figures(entry, |share| share.memory);
        (sum > has).then(|| over(entry, format!("{} is {sum}, but {} has {has}", figures(), named(gpu))))
    }

    fn too_much_compute(&self, entry: &GpuEntry) -> Option<Problem> {
        let part = |(n, _, share): (u32, _, Share)| u64::from(n) * u64::from(share.compute.get());
        let sum: u64 = self.parts(entry).map(part).sum();
        let figures = || self.figures(entry, |share| share.compute);
        (sum > 100).then(|| over(entry, format!("{} is {sum}% of a GPU's compute", figures())))
    }

    /// `4 small of 10GiB + 1 large of 20GiB`
    fn figures<D: fmt::Display>(&self, entry: &GpuEntry, of: impl Fn(Share) -> D) -> String {
        let part = |(n, name, share)| format!("{n} {name} of {}", of(share));
        self.parts(entry).map(part).collect::<Vec<_>>().join(" + ")
    }
}

fn shares(gpu: &Gpu, (n, kind, share): (u32, &TypeName, Share)) -> impl Iterator<Item = Vgpu> {
    (0..n).map(move |n| {
        let id = VgpuId { gpu: gpu.uuid.clone(), kind: kind.clone(), part: Part::Share(n) };
        let Share { memory, compute, isolation } = share;
        Vgpu { id, memory, compute: Some(compute), isolation, mig: None }
    })
}

fn mig_vgpu(gpu: &Gpu, kind: &TypeName, device: &MigDevice) -> Vgpu {
    let id = VgpuId { gpu: gpu.uuid.clone(), kind: kind.clone(), part: Part::Mig(device.instance) };
    Vgpu { id, memory: device.memory, compute: None, isolation: Isolation::None, mig: Some(device.clone()) }
}

fn over(entry: &GpuEntry, message: String) -> Problem {
    let remedy = "cut fewer or smaller vGPUs, or set overcommit = true in [policy]".into();
    Problem { at: entry.vgpus_at, message, remedy }
}

fn matched_twice(entry: &GpuEntry, matched: &[&Gpu], taken: &Taken<'_>) -> Option<Problem> {
    let mut again = matched.iter().filter_map(|gpu| Some((gpu, taken.get(&gpu.uuid)?)));
    let (gpu, line) = again.next()?;
    let others = match again.count() {
        0 => String::new(),
        n => format!(" (and {n} more)"),
    };
    let message = format!("{} is cut by line {line} already{others}", named(gpu));
    Some(Problem { at: entry.at, message, remedy: "let only one entry match it".into() })
}

/// `GPU-… at 0000:3b:00.0 ("NVIDIA A100-SXM4-40GB")`
fn named(gpu: &Gpu) -> String {
    format!("{} at {} ({})", gpu.uuid, gpu.pci, quoted(&gpu.name))
}

impl Select {
    /// Is the entry about this GPU?
    pub fn matches(&self, gpu: &Gpu) -> bool {
        match self {
            Self::Uuid(uuid) => gpu.uuid == *uuid,
            Self::Pci(pci) => gpu.pci == *pci,
            Self::Product(pattern) => matches(pattern, &gpu.name),
        }
    }
}

impl fmt::Display for Select {
    /// As it is written in the file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uuid(uuid) => write!(f, "uuid = \"{uuid}\""),
            Self::Pci(pci) => write!(f, "pci = \"{pci}\""),
            Self::Product(product) => write!(f, "product = {product:?}"),
        }
    }
}

/// `*` stands for any text. What stands between two stars is looked for from the left, and the
/// leftmost place is always good enough: it leaves the most for the rest.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == text };
    let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    let Some(text) = text.strip_prefix(start).and_then(|text| text.strip_suffix(end)) else { return false };
    let found = middle.split('*').try_fold(text, |text, part| Some(text.split_once(part)?.1));
    found.is_some()
}

#[cfg(test)]
mod tests {
    use super::super::{
        parse,
        tests::{gpu, in_mig_mode},
    };
    use super::*;
    use crate::types::Percent;

    const TYPES: &str = "[[type]]\nname = \"small\"\nmemory = \"10GiB\"\ncompute = 25\n[[type]]\nname = \"tiny\"\nmemory = \"1GiB\"\ncompute = 1\n";

    fn host(memory: [Option<u64>; 3]) -> Inventory {
        let names = ["NVIDIA A100-SXM4-40GB", "NVIDIA A100-PCIE-80GB", "NVIDIA L4"];
        let gpus = (0..).zip(names).zip(memory).map(|((i, name), memory)| gpu(i, name, memory));
        Inventory { gpus: gpus.collect(), ..Inventory::default() }
    }

    /// The table of these entries (`select` and `vgpus`), or the problems as `line:column message`.
    fn cut_as(settings: &str, entries: &[(&str, &str)], host: &Inventory) -> Result<Table, Vec<String>> {
        let entry = |(select, vgpus): &(&str, &str)| format!("[[gpu]]\n{select}\nvgpus = {{ {vgpus} }}\n");
        let text = format!("{settings}\n{TYPES}{}", entries.iter().map(entry).collect::<String>());
        let shown = |p: &Problem| format!("{}:{} {}", p.at.line, p.at.column, p.message);
        parse(&text).unwrap().cut(host).map_err(|problems| problems.iter().map(shown).collect())
    }

    fn cut(entries: &[(&str, &str)], host: &Inventory) -> Result<Table, Vec<String>> {
        cut_as("", entries, host)
    }

    const A40: Option<u64> = Some(40 << 30);

    fn ids(table: &Table) -> Vec<String> {
        table.gpus.iter().flat_map(|gpu| &gpu.vgpus).map(|vgpu| vgpu.id.to_string()).collect()
    }

    #[test]
    fn gpus_are_cut_as_their_entry_says() {
        let host = host([A40; 3]);
        let entries =
            [("pci = \"0000:02:00.0\"", "tiny = 1"), ("product = \"*A100*\"", "small = 2, tiny = 1")];
        let table = cut(&entries, &host).unwrap();
        let id = |gpu: u32, rest| format!("GPU-0000000{gpu}-0000-0000-0000-000000000000/{rest}");
        let expected = [
            (2, "tiny/0"),
            (0, "small/0"),
            (0, "small/1"),
            (0, "tiny/0"),
            (1, "small/0"),
            (1, "small/1"),
            (1, "tiny/0"),
        ];
        assert_eq!(ids(&table), expected.map(|(gpu, rest)| id(gpu, rest)));
        let small = &table.gpus[1].vgpus[0];
        assert_eq!((small.memory, small.compute.map(Percent::get)), (Bytes(10 << 30), Some(25)));
        assert_eq!(table.gpus.iter().map(|cut| cut.gpu.minor).collect::<Vec<_>>(), [2, 0, 1]);
        assert_eq!(table.absent, [""; 0]);
    }

    #[test]
    fn an_absent_gpu_stops_nobody() {
        let uuid = "uuid = \"GPU-ffffffff-0000-0000-0000-000000000000\"";
        let entries = [
            (uuid, "small = 4"),
            ("product = \"NVIDIA \\\"H*\"", "small = 4"),
            ("product = \"NVIDIA L4\"", "small = 1"),
        ];
        let table = cut(&entries, &host([A40; 3])).unwrap();
        assert_eq!(table.gpus.len(), 1);
        assert_eq!(table.absent, [uuid, "product = \"NVIDIA \\\"H*\""]);
    }

    #[test]
    fn no_gpu_is_cut_twice() {
        let uuid = "uuid = \"GPU-00000000-0000-0000-0000-000000000000\"";
        let entries = [
            (uuid, "small = 1"),
            ("pci = \"0000:01:00.0\"", "small = 1"),
            ("product = \"NVIDIA A100*\"", "small = 1"),
        ];
        let problems = cut(&entries, &host([A40; 3])).unwrap_err();
        let expected = "17:11 GPU-00000000-0000-0000-0000-000000000000 at 0000:00:00.0 (\"NVIDIA A100-SXM4-40GB\") is cut by line 11 already (and 1 more)";
        assert_eq!(problems, [expected]);
    }

    #[test]
    fn no_more_is_cut_than_there_is() {
        let all = |cuts| [("product = \"*\"", cuts)];
        let has = |first, second, third| host([Some(first), Some(second), third]);
        let (gib40, gib80) = (40 << 30, 80 << 30);
        assert!(cut(&all("small = 4"), &has(gib40, gib80, None)).is_ok());
        // The smallest GPU decides, and one byte is too much.
        let smaller = has(gib80, gib40 - 1, None);
        let problem = "12:9 4 small of 10GiB is 40GiB, but GPU-00000001-0000-0000-0000-000000000000 at 0000:01:00.0 (\"NVIDIA A100-PCIE-80GB\") has 42949672959B";
        assert_eq!(cut(&all("small = 4"), &smaller), Err(vec![problem.into()]));
        let both = cut(&all("small = 4, tiny = 1"), &has(gib80, gib40, None)).unwrap_err();
        assert!(
            both[0].starts_with("12:9 4 small of 10GiB + 1 tiny of 1GiB is 41GiB, but GPU-00000001"),
            "{both:?}"
        );
        assert_eq!(both[1..], ["12:9 4 small of 25% + 1 tiny of 1% is 101% of a GPU's compute"]);
        // Memory that is not known cannot be compared, compute can: also on a GPU that is absent.
        assert!(cut(&all("tiny = 100"), &host([None; 3])).is_ok());
        assert_eq!(cut(&all("tiny = 101"), &Inventory::default()).unwrap_err().len(), 1);
        let overcommit = "policy.overcommit = true";
        let table = cut_as(overcommit, &all("small = 1024"), &smaller).unwrap();
        assert_eq!(ids(&table).len(), 3 * 1024);
    }

    #[test]
    fn the_vgpus_of_a_gpu_in_mig_mode_are_its_mig_devices() {
        let devices =
            [("1g.5gb", 5 << 30), ("3g.20gb", 20 << 30), ("1g.5gb", 4 << 30), ("2g.10gb", 10 << 30)];
        let gpus = vec![gpu(0, "NVIDIA A100", A40), in_mig_mode(1, "NVIDIA A100", &devices)];
        let host = Inventory { gpus, ..Inventory::default() };
        let types = "[[type]]\nname = \"half\"\nmig = \"3g.20gb\"\n[[type]]\nname = \"m\"\nmig = \"1g.5gb\"\n\
            [[type]]\nname = \"none\"\nmig = \"7g.40gb\"\n";
        // Two of 30 GiB would be too much for a GPU that is cut.
        let share = "[[type]]\nname = \"share\"\nmemory = \"30GiB\"\ncompute = 50\n";
        let file = |entries: &str| parse(&(types.to_owned() + share + entries)).unwrap();
        let named = |table: &Table| {
            ids(table).iter().map(|id| id.replace("-0000-0000-0000-000000000000", "")).collect::<Vec<_>>()
        };
        let both = file("[[gpu]]\nproduct = \"*\"\nvgpus = { share = 1 }\n");
        let table = both.cut(&host).unwrap();
        let mig = ["GPU-00000001/half/2.0", "GPU-00000001/m/1.0", "GPU-00000001/m/3.0"];
        assert_eq!(named(&table), [&["GPU-00000000/share/0"], &mig[..]].concat());
        assert_eq!(table.gpus[1].vgpus[2].memory, Bytes(4 << 30));
        let offered = both.offered(&table);
        let offered: Vec<_> =
            offered.iter().map(|o| (o.name.as_str(), o.memory.0 >> 30, o.compute)).collect();
        assert_eq!(offered[..2], [("half", 20, None), ("m", 4, None)]);
        assert_eq!(offered[2], ("share", 30, Percent::try_from(50).ok()));
        let alone = file("[[gpu]]\nproduct = \"*\"\n").cut(&host).unwrap();
        assert_eq!(named(&alone), mig);
        let too_much = "[[gpu]]\npci = \"0000:01:00.0\"\nvgpus = { share = 2 }\n";
        assert_eq!(named(&file(too_much).cut(&host).unwrap()), mig);
    }

    #[test]
    fn sums_do_not_wrap() {
        let half = |name| format!("[[type]]\nname = \"{name}\"\nmemory = \"8388608TiB\"\ncompute = 1\n");
        for cuts in ["a = 2", "a = 1, b = 1"] {
            let gpu = format!("[[gpu]]\nproduct = \"*\"\nvgpus = {{ {cuts} }}\n");
            let file = parse(&(half("a") + &half("b") + &gpu)).unwrap();
            assert_eq!(file.cut(&host([A40; 3])).unwrap_err().len(), 1, "{cuts}");
        }
    }

    #[test]
    fn stars_stand_for_any_text() {
        for (pattern, text) in [
            ("", ""),
            ("a", "a"),
            ("*", ""),
            ("*", "abc"),
            ("a*", "a"),
            ("a*", "abc"),
            ("*c", "abc"),
            ("a*c", "abc"),
            ("a*b*c", "a-b-b-c"),
            ("*b*b*", "bb"),
            ("**", "x"),
            ("*é*", "né!"),
            ("a*ab", "aab"),
        ] {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("", "a"),
            ("a", "A"),
            ("a", "ab"),
            ("a*", "ba"),
            ("*c", "cb"),
            ("aa*aa", "aaa"),
            ("*b*b*", "b"),
            ("a*b*c", "acb"),
            ("a?", "ab"),
        ] {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }

    /// The rule said plainly, and slowly.
    fn matches_slowly(pattern: &[char], text: &[char]) -> bool {
        match pattern {
            [] => text.is_empty(),
            ['*', rest @ ..] => (0..=text.len()).any(|skip| matches_slowly(rest, &text[skip..])),
            [c, rest @ ..] => text.first() == Some(c) && matches_slowly(rest, &text[1..]),
        }
    }

    proptest::proptest! {
        #[test]
        fn stars_agree_with_the_plain_rule(pattern in "[ab*]{0,8}", text in "[ab*]{0,10}") {
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            proptest::prop_assert_eq!(matches(&pattern, &text), matches_slowly(&chars(&pattern), &chars(&text)));
        }
    }
}
