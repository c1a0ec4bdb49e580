//! The text of a pool file to [`PoolFile`]: which keys there are and what their values may be.
//! Touches nothing.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::num::NonZeroU32;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeString, DeValue};

use super::document::{Reader, Section, Value};
use super::problem::Problem;
use super::{GpuEntry, Isolation, Kind, Placement, Policy, PoolFile, RequestPolicy, Select, Share, VgpuType};
use crate::driver::{Capabilities, Grant};
use crate::error::quoted;
use crate::types::{Bytes, Invalid, MigProfile, Percent, TypeName};

/// The most vGPUs of one type that a GPU is cut into.
const MAX_COUNT: u32 = 1024;

/// The most memory that a worker takes (crates/remoting/src/server.rs).
const WORKERS: Bytes = Bytes(8 << 40);

/// The longest wait for the pool's lock. A hook that waits keeps its engine waiting.
const MAX_TIMEOUT: Duration = Duration::from_secs(60);

/// Reads the text of a pool file.
///
/// # Errors
/// Everything that is wrong with it, in the file's order.
pub fn parse(text: &str) -> Result<PoolFile, Vec<Problem>> {
    let (file, problems) = parse_recoverable(text);
    if problems.is_empty() { Ok(file) } else { Err(problems) }
}

/// As [`parse`], with what could be read all the same: a wrong value has its default there, a wrong
/// entry is left out. Good for finding more problems, never for leases.
pub fn parse_recoverable(text: &str) -> (PoolFile, Vec<Problem>) {
    let (mut reader, document) = Reader::of(text);
    let file = pool_file(&mut reader, document);
    (file, reader.finish())
}

/// Names that are given once only, and the line where.
type Names = HashMap<String, usize>;

/// What was said of types until now.
#[derive(Default)]
struct Types {
    names: Names,
    /// The MIG profiles that types are of.
    profiles: Names,
    /// The names of those types, also where their profile is wrong.
    mig: HashSet<String>,
}

fn pool_file<'t>(reader: &mut Reader<'t>, mut root: Section<'t>) -> PoolFile {
    let mut file = PoolFile::default();
    set(&mut file.state_dir, reader.optional(&mut root, "state_dir", directory));
    set(&mut file.driver_root, reader.optional(&mut root, "driver_root", directory));
    set(&mut file.debug, reader.optional(&mut root, "debug", boolean));
    let request = reader.table(&mut root, "request");
    let driver = reader.table(&mut root, "driver");
    let policy = reader.table(&mut root, "policy");
    let types = reader.list(&mut root, "type");
    let gpus = reader.list(&mut root, "gpu");
    reader.no_other_keys(root);

    let (mut types_seen, mut gpus_seen) = (Types::default(), Names::new());
    file.types = types.into_iter().filter_map(|entry| vgpu_type(reader, entry, &mut types_seen)).collect();
    file.gpus =
        gpus.into_iter().filter_map(|entry| gpu(reader, entry, &types_seen, &mut gpus_seen)).collect();
    if let Some(section) = request {
        file.request = request_policy(reader, section, &types_seen);
    }
    if let Some(section) = driver {
        file.driver = grant(reader, section);
    }
    if let Some(section) = policy {
        file.policy = pool_policy(reader, section);
    }
    file
}

fn request_policy<'t>(reader: &mut Reader<'t>, mut section: Section<'t>, types: &Types) -> RequestPolicy {
    let mut request = RequestPolicy::default();
    let default_type = reader.optional(&mut section, "default_type", parsed::<TypeName>);
    request.default_type = default_type.map(|name| {
        known_type(reader, name.span(), name.get_ref().as_str(), types);
        name.into_inner()
    });
    set(&mut request.allow_env, reader.optional(&mut section, "allow_env", boolean));
    let most = reader.optional(&mut section, "max_per_container", most);
    request.max_per_container = most.map(Spanned::into_inner);
    reader.no_other_keys(section);
    request
}

fn grant<'t>(reader: &mut Reader<'t>, mut section: Section<'t>) -> Grant {
    let mut grant = Grant::default();
    let named = section.has("capabilities");
    set(&mut grant.default, reader.optional(&mut section, "capabilities", parsed));
    let allow = reader.optional(&mut section, "allow", parsed::<Capabilities>);
    reader.no_other_keys(section);
    if let Some(allow) = allow {
        let at = allow.span();
        grant.allow = allow.into_inner();
        if named {
            nothing_beyond(reader, at, grant);
        } else {
            grant.default = allowed_of_default(reader, at, grant);
        }
    }
    grant
}

/// Says so where the file itself gives by default what it does not allow.
fn nothing_beyond(reader: &mut Reader<'_>, allow_at: Range<usize>, grant: Grant) {
    let beyond = grant.default.without(grant.allow);
    if !beyond.is_empty() {
        let message = format!("allow leaves out {beyond}, which is in capabilities (\"{}\")", grant.default);
        reader.wrong(allow_at, message, "add it, or set capabilities to less");
    }
}

/// What of the built-in default is allowed. Nothing at all would be a container without any file of the driver.
fn allowed_of_default(reader: &mut Reader<'_>, allow_at: Range<usize>, grant: Grant) -> Capabilities {
    let allowed = grant.default.and(grant.allow);
    if allowed.is_empty() {
        let message =
            format!("allow has nothing of {}, which a container gets that names none", grant.default);
        reader.wrong(allow_at, message, "say in capabilities what it gets instead");
    }
    allowed
}

fn pool_policy<'t>(reader: &mut Reader<'t>, mut section: Section<'t>) -> Policy {
    let mut policy = Policy::default();
    set(&mut policy.placement, reader.optional(&mut section, "placement", placement));
    set(&mut policy.lock_timeout, reader.optional(&mut section, "lock_timeout", timeout));
    set(&mut policy.overcommit, reader.optional(&mut section, "overcommit", boolean));
    set(&mut policy.allow_other_access, reader.optional(&mut section, "allow_other_access", boolean));
    reader.no_other_keys(section);
    policy
}

fn vgpu_type<'t>(reader: &mut Reader<'t>, mut entry: Section<'t>, types: &mut Types) -> Option<VgpuType> {
    let name = reader.required(&mut entry, "name", "\"small\"", parsed::<TypeName>);
    // The name counts even where the rest is wrong: who refers to it is not to blame.
    let unique = name.as_ref().is_none_or(|name| unique(reader, "type", name, &mut types.names));
    let is = if entry.has("mig") {
        types.mig.extend(name.as_ref().map(|name| name.get_ref().to_string()));
        mig_devices(reader, &mut entry, &mut types.profiles).map(Kind::Mig)
    } else {
        share(reader, &mut entry).map(Kind::Share)
    };
    reader.no_other_keys(entry);
    let (name, is) = (name?.into_inner(), is?);
    unique.then_some(VgpuType { name, is })
}

fn share<'t>(reader: &mut Reader<'t>, entry: &mut Section<'t>) -> Option<Share> {
    let memory = reader.required(entry, "memory", "\"10GiB\"", parsed);
    let compute = reader.required(entry, "compute", "25", percent);
    let isolated = reader.optional(entry, "isolation", isolation);
    // It is not there, but it is a key of this table.
    reader.optional(entry, "mig", parsed::<MigProfile>);
    let isolation = isolated.map(Spanned::into_inner).unwrap_or_default();
    let memory = memory?;
    if isolation.is_remote() && *memory.get_ref() > WORKERS {
        let message = format!("memory cannot be {} where isolation is \"remote\"", memory.get_ref());
        reader.wrong(memory.span(), message, format!("a worker has {WORKERS} at most"));
        return None;
    }
    Some(Share { memory: memory.into_inner(), compute: compute?.into_inner(), isolation })
}

fn mig_devices<'t>(
    reader: &mut Reader<'t>,
    entry: &mut Section<'t>,
    profiles: &mut Names,
) -> Option<MigProfile> {
    let profile = reader.optional(entry, "mig", parsed::<MigProfile>);
    for key in ["memory", "compute"] {
        let fixed = |_: &DeValue<'t>| Err::<(), _>(Invalid("the MIG profile says it; leave it out"));
        reader.optional(entry, key, fixed);
    }
    let apart = |_: &DeValue<'t>| Err::<(), _>(Invalid("MIG devices are isolated as they are; leave it out"));
    reader.optional(entry, "isolation", apart);
    let profile = profile?;
    unique(reader, "mig", &profile, profiles).then(|| profile.into_inner())
}

fn gpu<'t>(
    reader: &mut Reader<'t>,
    mut entry: Section<'t>,
    types: &Types,
    gpus: &mut Names,
) -> Option<GpuEntry> {
    let select = select(reader, &mut entry);
    let unique = select.as_ref().is_none_or(|select| unique(reader, "gpu", select, gpus));
    // MIG devices are there without it.
    let wanted = entry.has("vgpus") || types.mig.is_empty();
    let cuts = match wanted {
        true => reader.required(&mut entry, "vgpus", "{ small = 4 }", cuts),
        false => reader.optional(&mut entry, "vgpus", cuts),
    };
    reader.no_other_keys(entry);
    if wanted && cuts.is_none() {
        return None;
    }
    let vgpus_at = cuts.as_ref().map(|cuts| reader.place(cuts.span()));
    let cuts = cuts.map(Spanned::into_inner).unwrap_or_default();
    let vgpus = cuts.iter().filter_map(|(kind, n)| cut(reader, kind, n, types)).collect();
    let select = select?;
    let at = reader.place(select.span());
    let vgpus_at = vgpus_at.unwrap_or(at);
    unique.then_some(GpuEntry { select: select.into_inner(), vgpus, at, vgpus_at })
}

fn select<'t>(reader: &mut Reader<'t>, entry: &mut Section<'t>) -> Option<Spanned<Select>> {
    let written: Vec<_> = ["uuid", "pci", "product"].into_iter().filter(|key| entry.has(key)).collect();
    match written[..] {
        [] => reader.absent(
            entry.at(),
            "this gpu has no uuid, pci or product".into(),
            "add one of them; `nvidia-smi -L` shows UUIDs and products",
        ),
        [_] => {}
        _ => reader.wrong(entry.at(), format!("this gpu has {}", written.join(" and ")), "keep one of them"),
    }
    let uuid = reader.optional(entry, "uuid", |value| parsed(value).map(Select::Uuid));
    let pci = reader.optional(entry, "pci", |value| parsed(value).map(Select::Pci));
    let product = reader.optional(entry, "product", product);
    uuid.or(pci).or(product).filter(|_| written.len() == 1)
}

/// What `vgpus` says, in the file's order; the table itself is sorted by name.
type Cuts<'t> = Vec<(Spanned<DeString<'t>>, Value<'t>)>;

fn cuts<'t>(value: &DeValue<'t>) -> Result<Cuts<'t>, Invalid> {
    let rule = Invalid("it says how many of each type, like { small = 4 }");
    let mut cuts: Cuts<'t> = value.as_table().ok_or(rule)?.clone().into_iter().collect();
    cuts.sort_by_key(|(kind, _)| kind.span().start);
    Ok(cuts)
}

fn cut<'t>(
    reader: &mut Reader<'t>,
    kind: &Spanned<DeString<'t>>,
    n: &Value<'t>,
    types: &Types,
) -> Option<(TypeName, u32)> {
    if types.mig.contains(kind.get_ref().as_ref()) {
        let message = format!("type {} is of MIG devices, which no GPU is cut into here", kind.get_ref());
        reader.wrong(kind.span(), message, "leave it out: every MIG device of its profile is one");
        return None;
    }
    // A name with a dot and no quotes has become a table: that name is not meant.
    let known = n.get_ref().is_table() || known_type(reader, kind.span(), kind.get_ref(), types);
    let n = reader.read(&quoted(kind.get_ref()), n, count)?;
    Some((kind.get_ref().parse().ok().filter(|_| known)?, n.into_inner()))
}

/// Says so when there is no such type.
fn known_type(reader: &mut Reader<'_>, at: Range<usize>, name: &str, types: &Types) -> bool {
    let known = types.names.contains_key(name);
    if !known {
        let message = format!("no type is named {}", quoted(name));
        let mut names: Vec<_> = types.names.keys().map(String::as_str).collect();
        names.sort_unstable();
        let remedy = match &names[..] {
            [] => "define it in a [[type]]".into(),
            names => format!("define it in a [[type]], or use one of {}", names.join(", ")),
        };
        reader.absent(at, message, remedy);
    }
    known
}

/// Says so when the name was given before.
fn unique(reader: &mut Reader<'_>, what: &str, name: &Spanned<impl ToString>, seen: &mut Names) -> bool {
    match seen.entry(name.get_ref().to_string()) {
        Entry::Vacant(first) => {
            first.insert(reader.place(name.span()).line);
            true
        }
        Entry::Occupied(first) => {
            let message = format!("{what} {} is already in line {}", first.key(), first.get());
            reader.wrong(name.span(), message, "keep one of the two");
            false
        }
    }
}

/// Keeps the default where nothing was read.
fn set<T>(field: &mut T, value: Option<Spanned<T>>) {
    if let Some(value) = value {
        *field = value.into_inner();
    }
}

/// Text that `T` checks. What is no text is read as an empty one, which no type of ours accepts:
/// its rule says it all.
fn parsed<T: FromStr<Err = Invalid>>(value: &DeValue<'_>) -> Result<T, Invalid> {
    value.as_str().unwrap_or_default().parse()
}

fn boolean(value: &DeValue<'_>) -> Result<bool, Invalid> {
    value.as_bool().ok_or(Invalid("it is true or false, without quotes"))
}

fn integer(value: &DeValue<'_>) -> Option<i64> {
    let number = value.as_integer()?;
    i64::from_str_radix(number.as_str(), number.radix()).ok()
}

fn percent(value: &DeValue<'_>) -> Result<Percent, Invalid> {
    // Zero is no percentage: its rule speaks for everything that is no number either.
    integer(value).unwrap_or_default().try_into()
}

fn count(value: &DeValue<'_>) -> Result<u32, Invalid> {
    if value.is_table() {
        return Err(Invalid("it is a count; a type name with dots goes in quotes"));
    }
    let count = integer(value).and_then(|n| u32::try_from(n).ok()).filter(|n| (1..=MAX_COUNT).contains(n));
    count.ok_or(Invalid("it is a whole number from 1 to 1024"))
}

fn most(value: &DeValue<'_>) -> Result<NonZeroU32, Invalid> {
    let most = integer(value).and_then(|n| u32::try_from(n).ok()).and_then(NonZeroU32::new);
    most.ok_or(Invalid("it is a whole number above 0; leave it out for no limit"))
}

fn directory(value: &DeValue<'_>) -> Result<PathBuf, Invalid> {
    let plain = |text: &&str| Path::new(text).is_absolute() && !text.contains(char::is_control);
    let path = value.as_str().filter(plain).map(PathBuf::from);
    path.ok_or(Invalid("it is the absolute path of a directory, which begins with /"))
}

fn isolation(value: &DeValue<'_>) -> Result<Isolation, Invalid> {
    match value.as_str() {
        Some("none") => Ok(Isolation::None),
        Some("remote") => Ok(Isolation::Remote),
        _ => Err(Invalid("it is \"none\" or \"remote\"")),
    }
}

fn placement(value: &DeValue<'_>) -> Result<Placement, Invalid> {
    match value.as_str() {
        Some("pack") => Ok(Placement::Pack),
        Some("spread") => Ok(Placement::Spread),
        _ => Err(Invalid("it is \"pack\" or \"spread\"")),
    }
}

fn timeout(value: &DeValue<'_>) -> Result<Duration, Invalid> {
    let text = value.as_str().unwrap_or_default();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let timeout = match (number.parse(), unit) {
        (Ok(n), "s") => Some(Duration::from_secs(n)),
        (Ok(n), "ms") => Some(Duration::from_millis(n)),
        _ => None,
    };
    let bounded = timeout.filter(|t| !t.is_zero() && *t <= MAX_TIMEOUT);
    bounded.ok_or(Invalid("it is a whole number and s or ms, from \"1ms\" to \"60s\", like \"10s\""))
}

fn product(value: &DeValue<'_>) -> Result<Select, Invalid> {
    let product = value.as_str().filter(|text| !text.is_empty()).map(|text| Select::Product(text.to_owned()));
    product.ok_or(Invalid("it is a product name, and * stands for any text, like \"NVIDIA A100*\""))
}

#[cfg(test)]
mod tests;
