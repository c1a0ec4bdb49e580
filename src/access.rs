//! Other ways to a GPU than the lease: what the engine itself lets the container have. Pure.

use crate::device_rule::{self, DeviceRule};
use crate::error::{Error, Exit, Result, quoted};
use crate::gpu::{DRM_MAJOR, Majors};
use crate::oci::Bundle;
use crate::types::DeviceNumber;

/// Hooks of NVIDIA's own toolkit, which serve `NVIDIA_VISIBLE_DEVICES`.
const GPU_HOOKS: [&str; 3] = ["nvidia-container-runtime-hook", "nvidia-container-toolkit", "nvidia-ctk"];

/// Values with which NVIDIA's toolkit exposes no GPU.
const NO_DEVICES: [&str; 3] = ["", "void", "none"];

fn is_graphics(source: &str) -> bool {
    source.strip_prefix("/dev/dri").is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// A container with a lease that could reach more GPUs than that is refused: [`Exit::Request`].
/// `nodes` are the numbers of the driver's nodes on this host.
pub fn check(bundle: &Bundle, rules: &[DeviceRule], majors: &Majors, nodes: &[DeviceNumber]) -> Result<()> {
    match other_way(bundle, rules, majors, nodes) {
        Some(what) => Err(refusal(&what)),
        None => Ok(()),
    }
}

/// The error for a container that could reach more than its lease.
pub fn refusal(what: &str) -> Error {
    let message = format!(
        "the container would see GPUs beside its lease: {what}; start it without --privileged, --device and other GPU hooks, or set allow_other_access = true in pool.toml"
    );
    Error::new(Exit::Request, message)
}

/// A container that holds MIG devices and could use others on the same GPU, whose node they share, is refused:
/// [`Exit::Request`]. With CAP_SYS_ADMIN a process has all of the driver's capabilities, whatever nodes it may open
/// (MIG User Guide, "Device Nodes and Capabilities").
pub fn check_mig(bundle: &Bundle) -> Result<()> {
    if !bundle.has_sys_admin() {
        return Ok(());
    }
    let message = "the container would have all MIG devices of its GPU, not only those of its lease: it has \
        CAP_SYS_ADMIN; start it without (--cap-drop SYS_ADMIN), or set allow_other_access = true in pool.toml";
    Err(Error::new(Exit::Request, message))
}

/// The first way to a GPU beside the lease that a container has, as a text that says which; none where there is none.
pub fn other_way(
    bundle: &Bundle,
    rules: &[DeviceRule],
    majors: &Majors,
    nodes: &[DeviceNumber],
) -> Option<String> {
    let by_rule = || nodes.iter().find(|number| device_rule::allows(rules, **number));
    if let Some(number) = by_rule() {
        return Some(format!("its device rules allow {number}"));
    }
    let of_driver = |major: i64| u32::try_from(major).is_ok_and(|major| majors.owns(major));
    let node = bundle.devices().iter().find(|device| {
        device.major.is_some_and(of_driver) || device.number().is_some_and(|number| nodes.contains(&number))
    });
    if let Some(node) = node {
        return Some(format!("it is given the node {}", quoted(&node.path)));
    }
    let has_graphics = nodes.iter().any(|number| number.major == DRM_MAJOR);
    let mount = bundle
        .mount_sources()
        .find(|source| source.starts_with("/dev/nvidia") || has_graphics && is_graphics(source));
    if let Some(source) = mount {
        return Some(format!("{} is mounted into it", quoted(source)));
    }
    let cgroups = bundle.mount_sources().find(|source| source.starts_with("/sys/fs/cgroup"));
    if let Some(source) = cgroups {
        return Some(format!("{} is mounted into it, by which it could leave its cgroup", quoted(source)));
    }
    let visible = visible_devices(bundle).filter(|value| !NO_DEVICES.contains(value))?;
    let hook = bundle.hook_paths().find(|path| is_gpu_hook(path))?;
    let (hook, visible) = (quoted(hook), quoted(visible));
    Some(format!("hook {hook} serves its NVIDIA_VISIBLE_DEVICES={visible} (set that to void)"))
}

/// What NVIDIA's toolkit takes for the container's wish. Where nothing is said, images of early CUDA versions,
/// which it knows by these variables, get every GPU.
fn visible_devices<'a>(bundle: &'a Bundle) -> Option<&'a str> {
    let early = bundle.env("CUDA_VERSION").is_some_and(|version| !version.is_empty())
        && bundle.env("NVIDIA_REQUIRE_CUDA").is_none_or(str::is_empty);
    bundle.env("NVIDIA_VISIBLE_DEVICES").or(early.then_some("all"))
}

fn is_gpu_hook(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    GPU_HOOKS.iter().any(|hook| name.strip_suffix(".real").unwrap_or(name) == *hook)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAJORS: Majors = Majors { nvidia: 195, uvm: Some(511), caps: None };

    fn ask(json: &str) -> Option<String> {
        let bundle = Bundle::parse(json.as_bytes()).unwrap();
        let rules = bundle.device_rules().unwrap();
        let nodes = [0, 1, 255].map(|minor| DeviceNumber { major: 195, minor });
        let nodes = [&nodes[..], &[DeviceNumber { major: DRM_MAJOR, minor: 129 }]].concat();
        other_way(&bundle, &rules, &MAJORS, &nodes)
    }

    fn rules(json: &str) -> Option<String> {
        ask(&format!(r#"{{"linux":{{"resources":{{"devices":{json}}}}}}}"#))
    }

    #[test]
    fn rules_that_open_a_gpu() {
        assert_eq!(rules(r#"[{"allow":false,"access":"rwm"}]"#), None);
        assert_eq!(
            rules(r#"[{"allow":false},{"allow":true,"type":"c","major":1,"minor":3,"access":"rwm"}]"#),
            None
        );
        assert_eq!(rules(r#"[{"allow":false},{"allow":true,"type":"c","access":"m"}]"#), None);
        assert_eq!(rules(r#"[{"allow":true,"access":"rwm"}]"#).unwrap(), "its device rules allow 195:0");
        let one = r#"[{"allow":false},{"allow":true,"type":"c","major":195,"minor":1,"access":"rw"}]"#;
        assert_eq!(rules(one).unwrap(), "its device rules allow 195:1");
    }

    #[test]
    fn nodes_and_mounts() {
        let node = r#"{"linux":{"devices":[{"path":"/dev/x","type":"c","major":195,"minor":0}]}}"#;
        assert_eq!(ask(node).unwrap(), r#"it is given the node "/dev/x""#);
        let mount = r#"{"mounts":[{"destination":"/x","source":"/dev/nvidia0","type":"bind"}]}"#;
        assert_eq!(ask(mount).unwrap(), r#""/dev/nvidia0" is mounted into it"#);
        let cgroups = r#"{"mounts":[{"destination":"/cg","source":"/sys/fs/cgroup/devices","type":"bind"}]}"#;
        assert!(ask(cgroups).unwrap().ends_with("by which it could leave its cgroup"));
        let own = r#"{"mounts":[{"destination":"/sys/fs/cgroup","source":"cgroup","type":"cgroup"}]}"#;
        assert_eq!(ask(own), None);
    }

    #[test]
    fn sys_admin_has_every_mig_device() {
        let check = |sets: &str, namespaces: &str| {
            let json = format!(
                r#"{{"process":{{"capabilities":{sets}}},"linux":{{"namespaces":[{{"type":"mount"}}{namespaces}]}}}}"#
            );
            check_mig(&Bundle::parse(json.as_bytes()).unwrap())
        };
        let with = r#"{"bounding":["CAP_CHOWN","CAP_SYS_ADMIN"],"ambient":null}"#;
        assert_eq!(check(with, "").unwrap_err().exit, Exit::Request);
        assert_eq!(check(r#"{"ambient":["CAP_SYS_ADMIN"]}"#, "").unwrap_err().exit, Exit::Request);
        assert_eq!(check(r#"{"bounding":["CAP_CHOWN","CAP_SYS_ADMIN_NOT"]}"#, ""), Ok(()));
        assert_eq!(check("null", ""), Ok(()));
        // In a user namespace of its own it means nothing to the driver; another's may be the host's.
        assert_eq!(check(with, r#",{"type":"user"}"#), Ok(()));
        assert!(check(with, r#",{"type":"user","path":"/proc/1/ns/user"}"#).is_err());
    }

    #[test]
    fn graphics() {
        let node = |minor: u32| {
            format!(
                r#"{{"linux":{{"devices":[{{"path":"/dev/x","type":"c","major":226,"minor":{minor}}}]}}}}"#
            )
        };
        assert_eq!(ask(&node(129)).unwrap(), r#"it is given the node "/dev/x""#);
        assert_eq!(ask(&node(128)), None, "another vendor's");
        for source in ["/dev/dri", "/dev/dri/renderD129"] {
            let mount = format!(r#"{{"mounts":[{{"destination":"/x","source":"{source}","type":"bind"}}]}}"#);
            assert_eq!(ask(&mount).unwrap(), format!("{source:?} is mounted into it"));
        }
        let mount = r#"{"mounts":[{"destination":"/x","source":"/dev/drive","type":"bind"}]}"#;
        assert_eq!(ask(mount), None);
    }

    #[test]
    fn another_hook_with_a_request_of_its_own() {
        let with = |hook: &str, value: &str| {
            ask(&format!(
                r#"{{"process":{{"env":["NVIDIA_VISIBLE_DEVICES={value}"]}},"hooks":{{"prestart":[{{"path":"/usr/bin/{hook}"}}]}}}}"#
            ))
        };
        assert!(
            with("nvidia-container-runtime-hook", "all").unwrap().contains("NVIDIA_VISIBLE_DEVICES=\"all\"")
        );
        assert_eq!(with("nvidia-container-runtime-hook", "void"), None);
        assert_eq!(with("nvidia-container-runtime-hook", ""), None);
        assert_eq!(with("other-hook", "all"), None);
    }

    #[test]
    fn an_early_image_asks_for_all_by_saying_nothing() {
        let with = |env: &str| {
            ask(&format!(
                r#"{{"process":{{"env":[{env}]}},"hooks":{{"prestart":[{{"path":"/usr/bin/nvidia-container-runtime-hook"}}]}}}}"#
            ))
        };
        assert!(with(r#""CUDA_VERSION=8.0""#).is_some());
        assert_eq!(with(r#""CUDA_VERSION=12.4","NVIDIA_REQUIRE_CUDA=cuda>=12.4""#), None);
        assert_eq!(with(r#""CUDA_VERSION=8.0","NVIDIA_VISIBLE_DEVICES=void""#), None);
        assert_eq!(with(""), None);
    }
}
