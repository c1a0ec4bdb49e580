//! A pool file for the host at hand: every product's GPUs cut in four, and the MIG devices of those that are in MIG
//! mode. Touches nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::SAMPLE;
use crate::gpu::{Gpu, Inventory};
use crate::types::{Bytes, MigProfile};

/// Where the sample's own types and GPUs begin.
const EXAMPLES: &str = "[[type]]";

const GPUS: &str = "\
# GPUs: each is cut into vGPUs of these types. Instead of product, one GPU: uuid = \"GPU-…\", or
# pci = \"0000:3b:00.0\".
";

const NO_GPU: &str = "\
# No GPU was found on this host. This is how types and GPUs are written:

";

const UNKNOWN: &str = "\
# How much memory some GPUs have is not known here (no NVML library). Say how much of it a vGPU gets,
# and remove the # before the lines of this type and of those GPUs.

";

const MIG: &str = "\
# A GPU in MIG mode is not cut: each of its MIG devices is a vGPU of the type of its profile.
";

/// The text of a pool file for a host with these GPUs: the settings of the sample, a type for every MIG profile, and
/// for every product an entry that cuts its GPUs in four. Where the memory is not known, or a GPU in MIG mode
/// has no MIG devices, the entry is a comment to be completed.
pub fn propose(inventory: &Inventory, driver_root: &str) -> String {
    let (settings, examples) = SAMPLE.split_once(EXAMPLES).expect("the sample has a type");
    let mut text = settings.replace("driver_root = \"/\"", &format!("driver_root = {}", quote(driver_root)));
    if inventory.gpus.is_empty() {
        text.push_str(NO_GPU);
        text.push_str(&commented(&format!("{EXAMPLES}{examples}")));
        return text;
    }
    let products = products(inventory);
    let sizes: BTreeSet<Bytes> = products.iter().filter_map(|gpus| quarter(gpus)).collect();
    let profiles: BTreeSet<&MigProfile> =
        inventory.gpus.iter().flat_map(|gpu| profiles(gpu).into_keys()).collect();
    for size in &sizes {
        let _ = writeln!(text, "{}", vgpu_type(&name(*size, &sizes), &size.to_string()));
    }
    for profile in &profiles {
        // A name has no "+".
        let name = profile.as_str().replace('+', ".");
        let _ = writeln!(text, "[[type]]\nname = \"{name}\"\nmig = \"{profile}\"\n");
    }
    if products.iter().any(|gpus| is_cut(gpus) && quarter(gpus).is_none()) {
        text.push_str(UNKNOWN);
        let _ = writeln!(text, "{}", commented(&vgpu_type(unknown_name(&sizes), "…GiB")));
    }
    text.push_str(GPUS);
    if inventory.gpus.iter().any(|gpu| gpu.mig.is_some()) {
        text.push_str(MIG);
    }
    for gpus in products {
        let entry = entry(&gpus, &sizes);
        let complete = quarter(&gpus).is_some() || !is_cut(&gpus) && !profiles.is_empty();
        let entry = if complete { entry } else { commented(&entry) };
        let _ = write!(text, "\n{}{entry}", described(&gpus));
    }
    text
}

/// The GPUs by product, in the inventory's order; a GPU whose name would match nothing, or other
/// names too, is on its own.
fn products(inventory: &Inventory) -> Vec<Vec<&Gpu>> {
    let mut products: Vec<Vec<&Gpu>> = Vec::new();
    for gpu in &inventory.gpus {
        match products.iter_mut().find(|gpus| by_product(gpu) && gpus[0].name == gpu.name) {
            Some(gpus) => gpus.push(gpu),
            None => products.push(vec![gpu]),
        }
    }
    products
}

fn by_product(gpu: &Gpu) -> bool {
    !gpu.name.is_empty() && !gpu.name.contains('*')
}

/// Is any of them cut, since not in MIG mode?
fn is_cut(gpus: &[&Gpu]) -> bool {
    gpus.iter().any(|gpu| gpu.mig.is_none())
}

/// How many MIG devices it has of which profile.
fn profiles(gpu: &Gpu) -> BTreeMap<&MigProfile, usize> {
    let mut profiles = BTreeMap::new();
    gpu.mig.iter().flatten().for_each(|device| *profiles.entry(&device.profile).or_default() += 1);
    profiles
}

/// A quarter of the smallest of them that are cut, rounded down to a size that reads well.
fn quarter(gpus: &[&Gpu]) -> Option<Bytes> {
    let cut = gpus.iter().filter(|gpu| gpu.mig.is_none());
    let Bytes(memory) = cut.filter_map(|gpu| gpu.memory).min()?;
    let quarter = memory / 4;
    let step = if quarter < 1 << 30 { 1 << 20 } else { 256 << 20 };
    let rounded = quarter - quarter % step;
    (rounded > 0).then_some(Bytes(rounded))
}

/// `small` when it is the only type, else its size: `10g`, `9984m`.
fn name(size: Bytes, sizes: &BTreeSet<Bytes>) -> String {
    match size.0 {
        _ if sizes.len() == 1 => "small".into(),
        bytes if bytes.is_multiple_of(1 << 30) => format!("{}g", bytes >> 30),
        bytes => format!("{}m", bytes >> 20),
    }
}

fn unknown_name(sizes: &BTreeSet<Bytes>) -> &'static str {
    if sizes.is_empty() { "small" } else { "other" }
}

fn vgpu_type(name: &str, memory: &str) -> String {
    format!("[[type]]\nname = \"{name}\"\nmemory = \"{memory}\"\ncompute = 25\n")
}

/// A comment about each.
fn described(gpus: &[&Gpu]) -> String {
    let mut text = String::new();
    for gpu in gpus {
        let Gpu { uuid, pci, memory, mig, .. } = gpu;
        let memory = memory.map_or("memory unknown".to_owned(), |memory| memory.to_string());
        let devices: Vec<_> = profiles(gpu).iter().map(|(profile, n)| format!("{n} of {profile}")).collect();
        let mig = match (mig, &devices[..]) {
            (None, _) => String::new(),
            (Some(_), []) => ", in MIG mode, without a MIG device".to_owned(),
            (Some(_), devices) => format!(", in MIG mode: {}", devices.join(", ")),
        };
        let _ = writeln!(text, "# {uuid} at {pci}, {memory}{mig}");
    }
    text
}

fn entry(gpus: &[&Gpu], sizes: &BTreeSet<Bytes>) -> String {
    let select = match gpus[0] {
        gpu if by_product(gpu) => format!("product = {}", quote(&gpu.name)),
        gpu => format!("uuid = \"{}\"", gpu.uuid),
    };
    if !is_cut(gpus) {
        return format!("[[gpu]]\n{select}\n");
    }
    let name = quarter(gpus).map_or_else(|| unknown_name(sizes).to_owned(), |size| name(size, sizes));
    format!("[[gpu]]\n{select}\nvgpus = {{ {name} = 4 }}\n")
}

fn commented(text: &str) -> String {
    text.lines().map(|line| format!("# {line}").trim_end().to_owned() + "\n").collect()
}

/// A basic string of TOML, on one line whatever is in it.
fn quote(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out + "\""
}

#[cfg(test)]
mod tests {
    use super::super::{
        parse,
        tests::{gpu, in_mig_mode},
    };
    use super::*;

    fn host(gpus: Vec<Gpu>) -> Inventory {
        Inventory { gpus, ..Inventory::default() }
    }

    fn own_part(text: &str) -> &str {
        text.split_once("# Types").unwrap().1
    }

    #[test]
    fn every_proposal_cuts_every_gpu_of_known_memory_in_four() {
        let names = ["NVIDIA A100", "NVIDIA \"L4\" \\\n\u{1b}é", "*", ""];
        for sizes in [[40 << 30; 4], [42_505_273_344, 25_769_803_776, 1 << 30, 4 << 20]] {
            let gpus = (0..8).map(|i| gpu(i, names[i as usize / 2], Some(sizes[i as usize / 2]))).collect();
            let host = host(gpus);
            let table = parse(&propose(&host, "/")).unwrap().cut(&host).unwrap();
            assert_eq!(table.gpus.iter().map(|gpu| gpu.vgpus.len()).collect::<Vec<_>>(), [4; 8]);
        }
    }

    #[test]
    fn sizes_read_well_and_use_the_smallest_of_a_product() {
        let size = |memory| quarter(&[&gpu(0, "a", Some(memory)), &gpu(1, "a", Some(1 << 50))]);
        assert_eq!(size(40 << 30), Some(Bytes(10 << 30)));
        assert_eq!(size(42_505_273_344), Some(Bytes(9984 << 20)));
        assert_eq!(size(2 << 30), Some(Bytes(512 << 20)));
        assert_eq!(size((4 << 20) - 1), None);
        assert_eq!(quarter(&[&gpu(0, "a", None)]), None);
    }

    #[test]
    fn two_products() {
        let host = host(vec![gpu(0, "NVIDIA A100", Some(40 << 30)), gpu(1, "NVIDIA L4", Some(23_034 << 20))]);
        insta::assert_snapshot!(own_part(&propose(&host, "/")), @r#"
        : what one virtual GPU is. Any number of them.

        [[type]]
        name = "5632m"
        memory = "5632MiB"
        compute = 25

        [[type]]
        name = "10g"
        memory = "10GiB"
        compute = 25

        # GPUs: each is cut into vGPUs of these types. Instead of product, one GPU: uuid = "GPU-…", or
        # pci = "0000:3b:00.0".

        # GPU-00000000-0000-0000-0000-000000000000 at 0000:00:00.0, 40GiB
        [[gpu]]
        product = "NVIDIA A100"
        vgpus = { 10g = 4 }

        # GPU-00000001-0000-0000-0000-000000000000 at 0000:01:00.0, 23034MiB
        [[gpu]]
        product = "NVIDIA L4"
        vgpus = { 5632m = 4 }
        "#);
    }

    #[test]
    fn unknown_memory() {
        let host = host(vec![gpu(0, "NVIDIA A100", None), gpu(1, "NVIDIA A100", None)]);
        let text = propose(&host, "/run/nvidia/driver");
        assert!(text.contains("\ndriver_root = \"/run/nvidia/driver\""));
        assert_eq!(parse(&text).unwrap().gpus, []);
        insta::assert_snapshot!(own_part(&text), @r#"
        : what one virtual GPU is. Any number of them.

        # How much memory some GPUs have is not known here (no NVML library). Say how much of it a vGPU gets,
        # and remove the # before the lines of this type and of those GPUs.

        # [[type]]
        # name = "small"
        # memory = "…GiB"
        # compute = 25

        # GPUs: each is cut into vGPUs of these types. Instead of product, one GPU: uuid = "GPU-…", or
        # pci = "0000:3b:00.0".

        # GPU-00000000-0000-0000-0000-000000000000 at 0000:00:00.0, memory unknown
        # GPU-00000001-0000-0000-0000-000000000000 at 0000:01:00.0, memory unknown
        # [[gpu]]
        # product = "NVIDIA A100"
        # vgpus = { small = 4 }
        "#);
        // Nothing else is to be done than what the comment says.
        let completed = text.replace("\n# [[", "\n[[").replace("\n# name", "\nname");
        let completed =
            completed.replace("\n# memory = \"…", "\nmemory = \"10").replace("\n# compute", "\ncompute");
        let completed = completed.replace("\n# product", "\nproduct").replace("\n# vgpus", "\nvgpus");
        assert_eq!(parse(&completed).unwrap().cut(&host).unwrap().gpus[1].vgpus.len(), 4);
    }

    #[test]
    fn mig_mode() {
        let devices =
            [("1g.5gb", 5 << 30), ("3g.20gb", 20 << 30), ("1g.5gb", 5 << 30), ("1g.5gb+me", 5 << 30)];
        let host = host(vec![
            in_mig_mode(0, "NVIDIA A100", &devices),
            gpu(1, "NVIDIA A100", Some(40 << 30)),
            in_mig_mode(2, "NVIDIA H100", &devices[..1]),
            in_mig_mode(3, "NVIDIA H200", &[]),
        ]);
        let text = propose(&host, "/");
        insta::assert_snapshot!(own_part(&text), @r#"
        : what one virtual GPU is. Any number of them.

        [[type]]
        name = "small"
        memory = "10GiB"
        compute = 25

        [[type]]
        name = "1g.5gb"
        mig = "1g.5gb"

        [[type]]
        name = "1g.5gb.me"
        mig = "1g.5gb+me"

        [[type]]
        name = "3g.20gb"
        mig = "3g.20gb"

        # GPUs: each is cut into vGPUs of these types. Instead of product, one GPU: uuid = "GPU-…", or
        # pci = "0000:3b:00.0".
        # A GPU in MIG mode is not cut: each of its MIG devices is a vGPU of the type of its profile.

        # GPU-00000000-0000-0000-0000-000000000000 at 0000:00:00.0, 40GiB, in MIG mode: 2 of 1g.5gb, 1 of 1g.5gb+me, 1 of 3g.20gb
        # GPU-00000001-0000-0000-0000-000000000000 at 0000:01:00.0, 40GiB
        [[gpu]]
        product = "NVIDIA A100"
        vgpus = { small = 4 }

        # GPU-00000002-0000-0000-0000-000000000000 at 0000:02:00.0, 40GiB, in MIG mode: 1 of 1g.5gb
        [[gpu]]
        product = "NVIDIA H100"

        # GPU-00000003-0000-0000-0000-000000000000 at 0000:03:00.0, 40GiB, in MIG mode, without a MIG device
        [[gpu]]
        product = "NVIDIA H200"
        "#);
        let table = parse(&text).unwrap().cut(&host).unwrap();
        let vgpus: Vec<_> = table.gpus.iter().map(|gpu| gpu.vgpus.len()).collect();
        assert_eq!(vgpus, [4, 4, 1, 0]);
    }

    #[test]
    fn mig_mode_without_any_device() {
        let host = host(vec![in_mig_mode(0, "NVIDIA H200", &[])]);
        let text = propose(&host, "/");
        assert_eq!(parse(&text).unwrap().gpus, []);
        insta::assert_snapshot!(own_part(&text), @r#"
        : what one virtual GPU is. Any number of them.

        # GPUs: each is cut into vGPUs of these types. Instead of product, one GPU: uuid = "GPU-…", or
        # pci = "0000:3b:00.0".
        # A GPU in MIG mode is not cut: each of its MIG devices is a vGPU of the type of its profile.

        # GPU-00000000-0000-0000-0000-000000000000 at 0000:00:00.0, 40GiB, in MIG mode, without a MIG device
        # [[gpu]]
        # product = "NVIDIA H200"
        "#);
    }

    #[test]
    fn no_gpu() {
        let text = propose(&Inventory::default(), "/");
        let file = parse(&text).unwrap();
        assert_eq!((file.types, file.gpus), (vec![], vec![]));
        let examples = own_part(&text).replace("\n# ", "\n");
        assert!(examples.contains("\n[[type]]\nname") && examples.contains("\n[[gpu]]\nproduct"), "{text}");
    }
}
