//! What a bundle's config.json says against a plan for it: where a container started as it is written there would get
//! none of it, or be refused once it is created. Pure.

use std::path::Path;

use serde_json::Value;

use crate::error::quoted;
use crate::resolve::PLACE;

/// Where a hook mounts something in every container with a lease.
const MOUNT_POINTS: [&str; 2] = ["/dev/vgpu", PLACE];

/// A line for each doubt. The text is one that was read as a bundle.
pub(super) fn doubts(config_json: &[u8]) -> Vec<String> {
    let config = serde_json::from_slice(config_json).unwrap_or(Value::Null);
    let in_the_way = MOUNT_POINTS.iter().filter_map(|point| in_the_way(&config["mounts"], point));
    no_hook(&config["hooks"]).into_iter().chain(in_the_way).collect()
}

fn no_hook(hooks: &Value) -> Option<String> {
    let entries = ["createRuntime", "prestart"].into_iter().flat_map(|stage| list(&hooks[stage]));
    let mut words = entries.flat_map(|hook| list(&hook["args"]).chain([&hook["path"]]));
    // Another program may run it: strace, a shell.
    let is_ours = |word: &Value| word.as_str().is_some_and(|word| Path::new(word).ends_with("vgpu"));
    let message = "no createRuntime hook in its config.json runs vgpu, so that it would start without any of this; \
        add the hooks of /usr/share/vgpu/hooks.json";
    (!words.any(is_ours)).then(|| message.to_owned())
}

/// A hook mounts on the root file system and on a tmpfs of the container's own alone, and on nothing that is a mount
/// itself. The last mount at the point or above it is the one that is seen there.
fn in_the_way(mounts: &Value, point: &str) -> Option<String> {
    let at = |mount: &Value| mount["destination"].as_str().map(str::to_owned);
    let covers = |mount: &&Value| at(mount).is_some_and(|at| Path::new(point).starts_with(at));
    let last = list(mounts).filter(covers).last()?;
    let destination = at(last)?;
    let may_hold = last["type"] == "tmpfs" && Path::new(&destination) != Path::new(point);
    let destination = quoted(&destination);
    (!may_hold).then(|| {
        format!(
            "the mount at {destination} in its config.json is in the way of {point}, so that it would be refused; leave it out"
        )
    })
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_bundle_without_vgpus_hook_gets_nothing() {
        let says = |hooks: Value| no_hook(&hooks).is_some();
        let hook = |args: &[&str]| json!([{ "path": args[0], "args": args }]);
        let ours = hook(&["/opt/bin/vgpu", "hook", "createRuntime"]);
        assert!(!says(json!({ "createRuntime": ours })));
        assert!(!says(json!({ "prestart": ours })));
        assert!(!says(json!({ "createRuntime": hook(&["/usr/bin/strace", "/opt/bin/vgpu", "hook"]) })));
        assert!(!says(json!({ "createRuntime": [{ "path": "/opt/vgpu" }] })));
        for none in [Value::Null, json!({}), json!({ "poststop": ours }), json!({ "createRuntime": [{}] })] {
            assert!(says(none.clone()), "{none}");
        }
        assert!(says(json!({ "createRuntime": hook(&["/usr/bin/other-vgpu", "hook"]) })));
    }

    #[test]
    fn the_last_mount_above_a_mount_point_counts() {
        let way = |mounts: &[(&str, &str)], point| {
            let mounts: Vec<_> =
                mounts.iter().map(|(kind, at)| json!({ "type": kind, "destination": at })).collect();
            in_the_way(&json!(mounts), point).is_some()
        };
        let nvidia = MOUNT_POINTS[1];
        assert!(!way(
            &[("tmpfs", "/dev"), ("bind", "/usr/share"), ("bind", "/usr/local/nvidia/lib64")],
            nvidia
        ));
        assert!(!way(&[("tmpfs", "/dev"), ("devpts", "/dev/pts")], MOUNT_POINTS[0]));
        assert!(!way(&[("bind", "/usr"), ("tmpfs", "/usr/local/")], nvidia));
        assert!(way(&[("tmpfs", "/usr/local"), ("bind", "/usr")], nvidia));
        assert!(way(&[("bind", "/usr/local/")], nvidia));
        assert!(way(&[("tmpfs", "/usr/local/nvidia")], nvidia));
        assert!(way(&[("bind", "/dev")], MOUNT_POINTS[0]));
        assert!(in_the_way(&Value::Null, nvidia).is_none());
    }
}
