//! What a hook is told: the container's state on stdin and its bundle's config.json
//! (runtime-spec, "State" and "Configuration"). Pure.
//!
//! Both are read leniently: only the fields vgpu needs, unknown values of all others accepted, since
//! engines write many versions of the spec. Texts are borrowed from the input where they can be.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::device_rule::{Access, DeviceRule, Kind};
use crate::error::{Error, Exit, OrExit, Result, quoted};
use crate::types::{ContainerId, DeviceNumber, Invalid};

/// The container's state, as far as a hook needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The runtime's id of the container.
    pub id: ContainerId,
    /// Host pid of the container's first process; none in poststop (crun: 0, runc: left out).
    pub pid: Option<u32>,
    /// Absolute path of the bundle.
    pub bundle: PathBuf,
}

#[derive(Deserialize)]
struct RawState<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
    #[serde(default)]
    pid: i64,
    #[serde(borrow)]
    bundle: Cow<'a, str>,
}

impl State {
    /// Reads what a runtime writes to a hook's stdin. [`Exit::Request`] when it is not a state.
    pub fn parse(json: &[u8]) -> Result<Self> {
        let raw: RawState = serde_json::from_slice(json)
            .or_exit(Exit::Request, || "stdin holds no OCI state (a container runtime calls `vgpu hook`)")?;
        let id = raw
            .id
            .parse()
            .or_exit(Exit::Request, || format!("the state's container id is {}", quoted(&raw.id)))?;
        let bundle = PathBuf::from(&*raw.bundle);
        if !bundle.is_absolute() {
            let message = format!("the state's bundle is {}, not an absolute path", quoted(&raw.bundle));
            return Err(Error::new(Exit::Request, message));
        }
        Ok(Self { id, pid: u32::try_from(raw.pid).ok().filter(|pid| *pid != 0), bundle })
    }
}

/// config.json, as far as vgpu needs it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Bundle<'a> {
    #[serde(borrow)]
    process: Option<Process<'a>>,
    #[serde(borrow)]
    root: Option<Root<'a>>,
    #[serde(borrow)]
    mounts: Option<Vec<Mount<'a>>>,
    hooks: Option<Hooks>,
    annotations: Option<BTreeMap<String, String>>,
    #[serde(borrow)]
    linux: Option<Linux<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Process<'a> {
    #[serde(borrow)]
    env: Option<Vec<Cow<'a, str>>>,
    capabilities: Option<CapabilitySets>,
    user: Option<User>,
}

/// `process.user`: who the container's first process is, in ids of the container's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct User {
    /// 0 is root, to whom groups mean nothing.
    pub uid: u32,
    gid: u32,
    #[serde(rename = "additionalGids")]
    additional: Option<Vec<u32>>,
}

impl User {
    /// Is it in this group?
    pub fn is_in(&self, group: u32) -> bool {
        self.gid == group || self.additional.iter().flatten().any(|gid| *gid == group)
    }
}

/// `process.capabilities`
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CapabilitySets {
    bounding: Option<Vec<Capability>>,
    effective: Option<Vec<Capability>>,
    permitted: Option<Vec<Capability>>,
    inheritable: Option<Vec<Capability>>,
    ambient: Option<Vec<Capability>>,
}

#[derive(Debug, PartialEq, Eq, Deserialize)]
enum Capability {
    #[serde(rename = "CAP_SYS_ADMIN")]
    SysAdmin,
    #[serde(other)]
    Other,
}

impl CapabilitySets {
    fn have(&self, capability: &Capability) -> bool {
        let Self { bounding, effective, permitted, inheritable, ambient } = self;
        let sets = [bounding, effective, permitted, inheritable, ambient];
        sets.into_iter().flatten().flatten().any(|one| one == capability)
    }
}

#[derive(Debug, Deserialize)]
struct Root<'a> {
    #[serde(borrow)]
    path: Cow<'a, str>,
    readonly: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Mount<'a> {
    #[serde(borrow)]
    source: Option<Cow<'a, str>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Hooks {
    prestart: Option<Vec<HookEntry>>,
    #[serde(rename = "createRuntime")]
    create_runtime: Option<Vec<HookEntry>>,
    #[serde(rename = "createContainer")]
    create_container: Option<Vec<HookEntry>>,
    #[serde(rename = "startContainer")]
    start_container: Option<Vec<HookEntry>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct HookEntry {
    path: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Linux<'a> {
    #[serde(borrow)]
    resources: Option<Resources<'a>>,
    devices: Option<Vec<Device>>,
    mount_label: Option<String>,
    cgroups_path: Option<String>,
    namespaces: Option<Vec<Namespace>>,
}

/// `linux.namespaces[]`
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Namespace {
    r#type: String,
    path: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Resources<'a> {
    #[serde(borrow)]
    devices: Option<Vec<RawDeviceRule<'a>>>,
}

/// `linux.devices[]`: a node that the runtime makes in the container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Device {
    /// Where in the container.
    pub path: String,
    /// Its driver; none for a FIFO.
    pub major: Option<i64>,
    /// The device of that driver.
    pub minor: Option<i64>,
}

impl Device {
    /// Both in one; none where they are no numbers of a device.
    pub fn number(&self) -> Option<DeviceNumber> {
        let number = |n: Option<i64>| n.and_then(|n| u32::try_from(n).ok());
        Some(DeviceNumber { major: number(self.major)?, minor: number(self.minor)? })
    }
}

/// `linux.resources.devices[]` as it is written; what is absent stands for any.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawDeviceRule<'a> {
    allow: bool,
    #[serde(borrow, rename = "type")]
    kind: Option<Cow<'a, str>>,
    major: Option<i64>,
    minor: Option<i64>,
    #[serde(borrow)]
    access: Option<Cow<'a, str>>,
}

impl RawDeviceRule<'_> {
    fn check(&self) -> Result<DeviceRule, Invalid> {
        let kind = match self.kind.as_deref() {
            None | Some("" | "a") => Kind::All,
            // The runtime-spec's "u" is an old name for "c" (mknod(1)).
            Some("c" | "u") => Kind::Char,
            Some("b") => Kind::Block,
            Some(_) => return Err(Invalid("a device rule's type is a, b or c")),
        };
        // Some engines write -1 for any.
        let number = |n: Option<i64>| match n {
            None | Some(-1) => Ok(None),
            Some(n) => {
                u32::try_from(n).map(Some).map_err(|_| Invalid("a device number is from 0 to 4294967295"))
            }
        };
        let access = match self.access.as_deref() {
            None | Some("") => Access::ALL,
            Some(text) => text.parse()?,
        };
        Ok(DeviceRule {
            allow: self.allow,
            kind,
            major: number(self.major)?,
            minor: number(self.minor)?,
            access,
        })
    }
}

impl<'a> Bundle<'a> {
    /// Reads a config.json. [`Exit::Request`] when it is not one.
    pub fn parse(json: &'a [u8]) -> Result<Self> {
        serde_json::from_slice(json).or_exit(Exit::Request, || "cannot read the bundle's config.json")
    }

    /// As much of a config.json as says whether the container asks for anything, however wrong the rest of it
    /// is; none if it is no JSON at all.
    pub fn parse_request(json: &'a [u8]) -> Option<Self> {
        let whole: serde_json::Value = serde_json::from_slice(json).ok()?;
        let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
        let annotations = whole["annotations"].as_object().into_iter().flatten();
        let annotations = annotations.filter_map(|(key, value)| Some((key.clone(), text(value)?)));
        let env = whole["process"]["env"].as_array().into_iter().flatten();
        let env = env.filter_map(|value| text(value).map(Cow::Owned));
        Some(Self {
            annotations: Some(annotations.collect()),
            process: Some(Process { env: Some(env.collect()), ..Process::default() }),
            ..Self::default()
        })
    }

    /// All annotations, in order of their keys.
    pub fn annotations(&self) -> impl Iterator<Item = (&str, &str)> {
        self.annotations.iter().flatten().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// One annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// A variable of the container's first process; of several, the last one, as runtimes do.
    pub fn env(&self, name: &str) -> Option<&str> {
        let mut entries = self.process.as_ref()?.env.as_ref()?.iter().rev();
        entries.find_map(|entry| entry.strip_prefix(name)?.strip_prefix('='))
    }

    /// Who its first process is.
    pub fn user(&self) -> User {
        self.process.as_ref().and_then(|process| process.user.clone()).unwrap_or_default()
    }

    /// Is the root file system to be read-only for the container? (Runtimes make it so after the hooks.)
    pub fn root_is_read_only(&self) -> bool {
        self.root.as_ref().and_then(|root| root.readonly).unwrap_or(false)
    }

    /// The container's root file system on the host, absolute.
    pub fn root(&self, bundle: &Path) -> Result<PathBuf> {
        let root = self.root.as_ref().map(|root| bundle.join(&*root.path));
        root.ok_or_else(|| Error::new(Exit::Request, "the bundle's config.json has no root.path"))
    }

    /// Is its mount namespace one that is there already? Then others see what is mounted in it, and it is
    /// still there when the container is gone.
    pub fn joins_mount_namespace(&self) -> bool {
        let mut namespaces = self.linux.iter().flat_map(|linux| &linux.namespaces).flatten();
        namespaces.any(|namespace| {
            namespace.r#type == "mount" && namespace.path.as_ref().is_some_and(|path| !path.is_empty())
        })
    }

    /// Can a process of the container have CAP_SYS_ADMIN on the host, not only in a user namespace of its own?
    pub fn has_sys_admin(&self) -> bool {
        let sets = self.process.iter().flat_map(|process| &process.capabilities);
        let mut namespaces = self.linux.iter().flat_map(|linux| &linux.namespaces).flatten();
        let own = namespaces.any(|namespace| {
            namespace.r#type == "user" && namespace.path.as_deref().is_none_or(str::is_empty)
        });
        !own && sets.into_iter().any(|sets| sets.have(&Capability::SysAdmin))
    }

    /// A sandbox ("pause") container holds a pod's namespaces and runs nothing of its own, yet gets the
    /// pod's annotations. CRI-O and containerd each mark it in their own way.
    pub fn is_sandbox(&self) -> bool {
        ["io.kubernetes.cri-o.ContainerType", "io.kubernetes.cri.container-type"]
            .iter()
            .any(|key| self.annotation(key) == Some("sandbox"))
    }

    /// Host paths that are mounted into the container.
    pub fn mount_sources(&self) -> impl Iterator<Item = &str> {
        self.mounts.iter().flatten().filter_map(|mount| mount.source.as_deref())
    }

    /// Paths of all hooks that run before the container's program.
    pub fn hook_paths(&self) -> impl Iterator<Item = &str> {
        let stages = self.hooks.iter().flat_map(|hooks| {
            [&hooks.prestart, &hooks.create_runtime, &hooks.create_container, &hooks.start_container]
        });
        stages.flatten().flatten().map(|hook| hook.path.as_str())
    }

    /// Nodes the runtime makes in the container.
    pub fn devices(&self) -> &[Device] {
        self.linux.as_ref().and_then(|linux| linux.devices.as_deref()).unwrap_or_default()
    }

    /// The device cgroup's rules, in order. [`Exit::Request`] for one that no kernel could follow.
    pub fn device_rules(&self) -> Result<Vec<DeviceRule>> {
        let resources = self.linux.as_ref().and_then(|linux| linux.resources.as_ref());
        let raw = resources.and_then(|resources| resources.devices.as_deref()).unwrap_or_default();
        let rules = raw.iter().map(RawDeviceRule::check).collect::<Result<_, _>>();
        rules.or_exit(Exit::Request, || "cannot follow linux.resources.devices in config.json")
    }

    /// Where the container's cgroup is to be, in the form that the runtime's cgroup manager wants.
    pub fn cgroups_path(&self) -> Option<&str> {
        self.linux.as_ref()?.cgroups_path.as_deref()
    }

    /// The SELinux label that the container's mounts carry.
    pub fn mount_label(&self) -> Option<&str> {
        self.linux.as_ref()?.mount_label.as_deref().filter(|label| !label.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_of_runc_and_crun() {
        let runc = br#"{"ociVersion":"1.0.2-dev","id":"t1","status":"creating","pid":5474,"bundle":"/b"}"#;
        let crun =
            br#"{"ociVersion":"1.0","id":"t1","pid":0,"root":"rootfs","bundle":"/b","status":"stopped"}"#;
        let bundle = PathBuf::from("/b");
        let id: ContainerId = "t1".parse().unwrap();
        let with = |pid| State { id: id.clone(), pid, bundle: bundle.clone() };
        assert_eq!(State::parse(runc).unwrap(), with(Some(5474)));
        assert_eq!(State::parse(crun).unwrap(), with(None));
    }

    #[test]
    fn states_that_are_none() {
        for (json, part) in [
            (&b""[..], "stdin holds no OCI state"),
            (br#"{"id":"a\nb","bundle":"/b"}"#, r#"container id is "a\nb""#),
            (br#"{"id":"a","bundle":"b"}"#, r#"bundle is "b", not an absolute path"#),
        ] {
            let error = State::parse(json).unwrap_err();
            assert_eq!(error.exit, Exit::Request);
            assert!(error.to_string().contains(part), "{error}");
        }
    }

    #[test]
    fn unknown_things_in_a_bundle_are_no_error() {
        let json = br#"{"process":{"env":null,"capabilities":{"bounding":["CAP_NEW"]}},"hooks":{"poststop":7},
            "mounts":[{"destination":"/x","type":"new","options":[{}]}],"linux":{"devices":null,"seccomp":5},"zz":1}"#;
        let bundle = Bundle::parse(json).unwrap();
        assert_eq!(bundle.mount_sources().count() + bundle.devices().len() + bundle.hook_paths().count(), 0);
    }

    #[test]
    fn a_request_is_found_whatever_is_wrong_beside_it() {
        let json = br#"{"annotations":{"a":1,"b":"2"},"process":{"env":[null,"C=3"]},"root":{},"mounts":5}"#;
        assert!(Bundle::parse(json).is_err());
        let bundle = Bundle::parse_request(json).unwrap();
        assert_eq!(
            (bundle.annotation("a"), bundle.annotation("b"), bundle.env("C")),
            (None, Some("2"), Some("3"))
        );
        assert!(Bundle::parse_request(b"{").is_none());
    }

    #[test]
    fn device_rules_as_engines_write_them() {
        let json = br#"{"linux":{"resources":{"devices":[{"allow":false,"access":"rwm"},
            {"allow":true,"type":"c","major":1,"minor":3,"access":"rwm"},
            {"allow":true,"type":"b","major":8,"minor":-1,"access":"r"}]}}}"#;
        let rules = Bundle::parse(json).unwrap().device_rules().unwrap();
        let texts: Vec<_> = rules.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["a *:* rwm", "c 1:3 rwm", "b 8:* r"]);
        let bad = br#"{"linux":{"resources":{"devices":[{"allow":true,"type":"c","major":-7}]}}}"#;
        assert_eq!(Bundle::parse(bad).unwrap().device_rules().unwrap_err().exit, Exit::Request);
    }

    #[test]
    fn a_mount_namespace_with_a_path_is_joined() {
        for (namespaces, joins) in [
            ("null", false),
            (r#"[{"type":"pid","path":"/p"},{"type":"mount"}]"#, false),
            (r#"[{"type":"mount","path":""},{"type":"mount","path":null}]"#, false),
            (r#"[{"type":"mount","path":"/proc/1/ns/mnt"}]"#, true),
        ] {
            let json = format!(r#"{{"linux":{{"namespaces":{namespaces}}}}}"#);
            assert_eq!(Bundle::parse(json.as_bytes()).unwrap().joins_mount_namespace(), joins, "{json}");
        }
    }

    #[test]
    fn the_last_of_equal_variables_counts() {
        let json = br#"{"process":{"env":["A=1","AB=3","A=2=x","C"]}}"#;
        let bundle = Bundle::parse(json).unwrap();
        assert_eq!((bundle.env("A"), bundle.env("C"), bundle.env("B")), (Some("2=x"), None, None));
    }
}
