//! The config.json of a container that runc, crun or containerd runs. Pure.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use oci_spec::runtime::{
    Hook, HookBuilder, HooksBuilder, LinuxDeviceCgroupBuilder, LinuxIdMappingBuilder, LinuxNamespaceBuilder,
    LinuxNamespaceType, RootBuilder, Spec,
};
use serde_json::{Value, json};

/// The first host id of a container with uid and gid mappings; it has 65,536 of them.
pub const MAPPED: u32 = 100_000;

/// A hook: the stage as config.json names it, and its command line.
#[derive(Clone, Debug)]
pub struct HookCall {
    /// `createRuntime`, `prestart`, `poststop`
    pub stage: String,
    /// Program (an absolute path) and arguments.
    pub argv: Vec<String>,
}

/// What a container is to be.
#[derive(Clone, Debug, Default)]
pub struct Description {
    /// The command line of its first process.
    pub args: Vec<String>,
    /// Added to its environment.
    pub env: Vec<String>,
    /// Its annotations.
    pub annotations: HashMap<String, String>,
    /// Its hooks, in order.
    pub hooks: Vec<HookCall>,
    /// Does it have uid and gid mappings?
    pub mapped: bool,
    /// Does it share the host's pid namespace?
    pub host_pids: bool,
    /// Is its root read-only?
    pub read_only: bool,
}

/// The config.json: what engines commonly write, and what the description says.
pub fn config(description: &Description, root: &Path, cgroup: &str) -> Value {
    let mut spec = Spec::default();
    let root = RootBuilder::default().path(root).readonly(description.read_only).build().expect("a root");
    spec.set_root(Some(root));
    spec.set_hostname(Some("test".to_owned()));
    spec.set_annotations(Some(description.annotations.clone()));
    spec.set_hooks(Some(hooks(&description.hooks)));
    process(&mut spec, description);
    linux(&mut spec, description, cgroup);
    serde_json::to_value(spec).expect("a spec is JSON")
}

fn process(spec: &mut Spec, description: &Description) {
    let process = spec.process_mut().as_mut().expect("the default has a process");
    process.set_args(Some(description.args.clone()));
    process.env_mut().get_or_insert_default().extend(description.env.clone());
}

fn linux(spec: &mut Spec, description: &Description, cgroup: &str) {
    let linux = spec.linux_mut().as_mut().expect("the default is for Linux");
    linux.set_cgroups_path(Some(PathBuf::from(cgroup)));
    // Every engine begins its list with this rule.
    let nothing = LinuxDeviceCgroupBuilder::default().allow(false).access("rwm").build().expect("a rule");
    linux.resources_mut().get_or_insert_default().set_devices(Some(vec![nothing]));
    let namespaces = linux.namespaces_mut().as_mut().expect("the default has namespaces");
    if description.host_pids {
        namespaces.retain(|namespace| namespace.typ() != LinuxNamespaceType::Pid);
    }
    if description.mapped {
        let user = LinuxNamespaceBuilder::default().typ(LinuxNamespaceType::User).build();
        namespaces.push(user.expect("a namespace"));
        let ids =
            LinuxIdMappingBuilder::default().container_id(0_u32).host_id(MAPPED).size(65_536_u32).build();
        let ids = vec![ids.expect("a mapping")];
        linux.set_uid_mappings(Some(ids.clone())).set_gid_mappings(Some(ids));
    }
}

fn hooks(calls: &[HookCall]) -> oci_spec::runtime::Hooks {
    let of = |stage: &str| -> Vec<Hook> {
        calls.iter().filter(|call| call.stage == stage).map(|call| hook(&call.argv)).collect()
    };
    HooksBuilder::default()
        .prestart(of("prestart"))
        .create_runtime(of("createRuntime"))
        .create_container(of("createContainer"))
        .start_container(of("startContainer"))
        .poststart(of("poststart"))
        .poststop(of("poststop"))
        .build()
        .expect("hooks")
}

fn hook(argv: &[String]) -> Hook {
    HookBuilder::default().path(&argv[0]).args(argv.to_vec()).build().expect("a hook")
}

/// The hooks as files of a hooks.d directory, name and content, for engines that write their own spec.
pub fn hooks_d(calls: &[HookCall]) -> Vec<(String, String)> {
    let file = |(n, call): (usize, &HookCall)| {
        let content = serde_json::json!({
            "version": "1.0.0",
            "hook": { "path": call.argv[0], "args": call.argv },
            "when": { "always": true },
            "stages": [call.stage],
        });
        (format!("{n:02}-{}.json", call.stage), content.to_string())
    };
    calls.iter().enumerate().map(file).collect()
}

/// The mounts of a config.json.
pub fn mounts(config: &mut Value) -> &mut Vec<Value> {
    config["mounts"].as_array_mut().expect("mounts")
}

/// Mounts what the host has at `source`.
pub fn bind(config: &mut Value, source: &str, destination: &str, options: &[&str]) {
    let options = [&["rbind"], options].concat();
    let mount = json!({ "type": "bind", "source": source, "destination": destination, "options": options });
    mounts(config).push(mount);
}

/// As [`config`] writes it: the runtime mounts a tmpfs at `/dev`.
pub fn with_dev(_: &mut Value) {}

/// `/dev` and what is below it are not mounted: the image's own is used.
pub fn without_dev(config: &mut Value) {
    mounts(config).retain(|mount| !mount["destination"].as_str().expect("a destination").starts_with("/dev"));
}

/// The image's `/dev` is copied into the tmpfs that the runtime mounts there.
pub fn copied_up(config: &mut Value) {
    for mount in mounts(config).iter_mut().filter(|mount| mount["destination"] == "/dev") {
        mount["options"].as_array_mut().expect("options").push(json!("tmpcopyup"));
    }
}
