//! What a container asks for: how many virtual GPUs (row A2) of what type (row A3). Pure.

use crate::config::{Offered, RequestPolicy};
use crate::error::{Error, Exit, Result, quoted};
use crate::oci::Bundle;
use crate::types::{Bytes, Count, Invalid, TypeName};

/// Where a request was found. Annotations come from whoever starts the container; the environment
/// may come from its image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// `vgpu.count`, `vgpu.type`, `vgpu.memory`
    Annotations,
    /// `VGPU_COUNT`, `VGPU_TYPE`, `VGPU_MEMORY`
    Environment,
}

/// A request as it is written, not yet checked: the environment of a host that does not let it ask
/// may hold anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found<'a> {
    /// Where.
    pub source: Source,
    count: Option<&'a str>,
    kind: Option<&'a str>,
    memory: Option<&'a str>,
    unknown: Option<(&'a str, &'a str)>,
}

/// What a container asks for, checked in itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// How many.
    pub count: Count,
    /// Of this type.
    pub kind: Option<TypeName>,
    /// With at least so much memory each.
    pub memory: Option<Bytes>,
}

/// What the pool is asked for: so many, each of one of these types.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Want {
    /// How many.
    pub count: Count,
    /// The types that will do; never empty.
    pub kinds: Vec<TypeName>,
}

/// Finds a container's request (row A1). Any `vgpu.` annotation silences the environment, an empty one
/// too: that is how somebody who starts a container overrules its image. Empty values count as not set.
pub fn find<'a>(bundle: &'a Bundle) -> Option<Found<'a>> {
    if bundle.is_sandbox() {
        return None;
    }
    let found = by_annotation(bundle).unwrap_or_else(|| by_environment(bundle));
    let asks = [found.count, found.kind, found.memory].iter().any(Option::is_some);
    (asks || found.unknown.is_some()).then_some(found)
}

fn by_annotation<'a>(bundle: &'a Bundle) -> Option<Found<'a>> {
    let mut found =
        Found { source: Source::Annotations, count: None, kind: None, memory: None, unknown: None };
    let mut any = false;
    for (key, value) in bundle.annotations() {
        let Some(name) = key.strip_prefix("vgpu.") else { continue };
        any = true;
        match name {
            "count" => found.count = set(value),
            "type" => found.kind = set(value),
            "memory" => found.memory = set(value),
            _ => found.unknown = Some((key, value)),
        }
    }
    any.then_some(found)
}

fn by_environment<'a>(bundle: &'a Bundle) -> Found<'a> {
    let variable = |name| bundle.env(name).and_then(set);
    Found {
        source: Source::Environment,
        count: variable("VGPU_COUNT"),
        kind: variable("VGPU_TYPE"),
        memory: variable("VGPU_MEMORY"),
        unknown: None,
    }
}

fn set(value: &str) -> Option<&str> {
    Some(value).filter(|value| !value.is_empty())
}

impl Found<'_> {
    /// May it ask at all? A host can leave that to annotations.
    pub fn may_ask(&self, policy: &RequestPolicy) -> bool {
        self.source == Source::Annotations || policy.allow_env
    }

    /// Checks each value by itself. [`Exit::Request`], with key and value, for anything that is not one.
    pub fn check(&self) -> Result<Request> {
        if let Some((key, value)) = self.unknown {
            let message = format!(
                "unknown annotation {} (it is {}); known are vgpu.count, vgpu.type, vgpu.memory",
                quoted(key),
                quoted(value)
            );
            return Err(Error::new(Exit::Request, message));
        }
        let count = self.value(0, self.count)?;
        Ok(Request {
            count: count.unwrap_or(Count::ONE),
            kind: self.value(1, self.kind)?,
            memory: self.value(2, self.memory)?,
        })
    }

    fn value<T: std::str::FromStr<Err = Invalid>>(
        &self,
        key: usize,
        text: Option<&str>,
    ) -> Result<Option<T>> {
        let Some(text) = text else { return Ok(None) };
        let name = match self.source {
            Source::Annotations => {
                ["annotation vgpu.count", "annotation vgpu.type", "annotation vgpu.memory"]
            }
            Source::Environment => ["variable VGPU_COUNT", "variable VGPU_TYPE", "variable VGPU_MEMORY"],
        };
        text.parse().map(Some).map_err(|allowed: Invalid| {
            Error::new(Exit::Request, format!("the container's {} is {}; {allowed}", name[key], quoted(text)))
        })
    }
}

impl Request {
    /// Holds the request against the types that GPUs of this host are cut into (`offered`, in the pool
    /// file's order). [`Exit::Request`] when no pool of this shape could ever serve it.
    pub fn want(&self, policy: &RequestPolicy, offered: &[Offered<'_>]) -> Result<Want> {
        let refuse = |message: String| Err(Error::new(Exit::Request, message));
        if let Some(most) = policy.max_per_container.filter(|most| self.count.get() > most.get()) {
            return refuse(format!(
                "the container asks for {} vGPUs; at most {most} are allowed (max_per_container)",
                self.count.get()
            ));
        }
        // A type is filled in only for a request that names nothing but a count.
        let named = self.kind.as_ref().or(policy.default_type.as_ref().filter(|_| self.memory.is_none()));
        // One that stands for whatever there is means a GPU, not a worker.
        let gpus = || offered.iter().filter(|t| !t.isolation.is_remote());
        let kinds = match (named, self.memory) {
            (None, None) => gpus().map(|t| t.name.clone()).collect(),
            (None, Some(memory)) => smallest(gpus(), memory).into_iter().collect(),
            (Some(name), memory) => match offered.iter().find(|t| t.name == name) {
                None => {
                    return refuse(format!(
                        "no GPU here is cut into type {}; there is {}",
                        quoted(name.as_str()),
                        list(offered)
                    ));
                }
                Some(t) if memory.is_some_and(|memory| t.memory < memory) => {
                    let (asked, has) = (memory.unwrap_or(t.memory), t.memory);
                    return refuse(format!(
                        "the container asks for type {name} and {asked} of memory, but that type has {has}; leave one out"
                    ));
                }
                Some(t) if t.isolation.is_remote() && self.count != Count::ONE => {
                    return refuse(format!(
                        "the container asks for {} vGPUs of type {name}, which workers serve (isolation = \"remote\"): a container \
                         has one of those",
                        self.count.get()
                    ));
                }
                Some(t) => vec![t.name.clone()],
            },
        };
        if kinds.is_empty() {
            let asked = self.memory.map(|memory| format!(" with {memory} of memory")).unwrap_or_default();
            if self.memory.is_none() && !offered.is_empty() {
                return refuse(format!(
                    "no type is named, and GPUs here have only {}; name one",
                    list(offered)
                ));
            }
            return refuse(format!("no GPU here is cut into a type{asked}; there is {}", list(offered)));
        }
        Ok(Want { count: self.count, kinds })
    }
}

/// The smallest type with at least so much memory; of equals one of MIG devices, then the one with the smaller
/// compute share, then the first in the file.
fn smallest<'o>(offered: impl Iterator<Item = &'o Offered<'o>>, memory: Bytes) -> Option<TypeName> {
    let enough = offered.filter(|t| t.memory >= memory);
    enough.min_by_key(|t| (t.memory, t.compute)).map(|t| t.name.clone())
}

fn list(offered: &[Offered<'_>]) -> String {
    let by_name = |t: &Offered<'_>| if t.isolation.is_remote() { ", by its name alone" } else { "" };
    let names: Vec<_> = offered.iter().map(|t| format!("{} ({}{})", t.name, t.memory, by_name(t))).collect();
    if names.is_empty() {
        "none at all (pool.toml has no [[gpu]] that matches)".to_owned()
    } else {
        names.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Isolation;

    fn bundle(annotations: &[(&str, &str)], env: &[&str]) -> String {
        let annotations: serde_json::Map<_, _> =
            annotations.iter().map(|(k, v)| (k.to_string(), (*v).into())).collect();
        serde_json::json!({"annotations": annotations, "process": {"env": env}}).to_string()
    }

    fn request(annotations: &[(&str, &str)], env: &[&str]) -> Option<Result<Request>> {
        let json = bundle(annotations, env);
        let bundle = Bundle::parse(json.as_bytes()).unwrap();
        find(&bundle).map(|found| found.check())
    }

    fn asks(count: &str, kind: Option<&str>, memory: Option<&str>) -> Option<Result<Request>> {
        Some(Ok(Request {
            count: count.parse().unwrap(),
            kind: kind.map(|kind| kind.parse().unwrap()),
            memory: memory.map(|memory| memory.parse().unwrap()),
        }))
    }

    #[test]
    fn annotations_ask() {
        let full = [("vgpu.count", "2"), ("vgpu.type", "small"), ("vgpu.memory", "4GiB")];
        assert_eq!(request(&full, &[]), asks("2", Some("small"), Some("4GiB")));
        assert_eq!(request(&full[1..2], &[]), asks("1", Some("small"), None));
    }

    #[test]
    fn the_environment_asks() {
        assert_eq!(request(&[], &["VGPU_COUNT=3"]), asks("3", None, None));
        assert_eq!(request(&[], &["VGPU_REUSE=off", "XVGPU_COUNT=1", "VGPU_COUNT"]), None);
    }

    #[test]
    fn any_annotation_silences_the_environment() {
        let env = ["VGPU_COUNT=8", "VGPU_TYPE=large"];
        assert_eq!(request(&[("vgpu.count", "1")], &env), asks("1", None, None));
        assert_eq!(request(&[("vgpu.count", "")], &env), None);
        assert_eq!(request(&[("vgpus", "1")], &env), asks("8", Some("large"), None));
    }

    #[test]
    fn nothing_asked() {
        assert_eq!(request(&[("other", "1")], &["PATH=/bin", "VGPU_COUNT=", "VGPU_TYPE="]), None);
        assert_eq!(request(&[("vgpu.count", ""), ("vgpu.type", "")], &[]), None);
    }

    #[test]
    fn a_sandbox_asks_for_nothing() {
        for key in ["io.kubernetes.cri-o.ContainerType", "io.kubernetes.cri.container-type"] {
            assert_eq!(request(&[(key, "sandbox"), ("vgpu.count", "1")], &["VGPU_COUNT=1"]), None);
            assert!(request(&[(key, "container"), ("vgpu.count", "1")], &[]).is_some());
        }
    }

    #[test]
    fn bad_values_are_quoted_and_cut() {
        let long = "9".repeat(4096);
        for (key, value, shown) in [
            ("vgpu.count", "0", r#"vgpu.count is "0"; a count is"#.to_owned()),
            ("vgpu.count", "-1", r#"is "-1";"#.to_owned()),
            ("vgpu.count", "1.5", r#"is "1.5";"#.to_owned()),
            ("vgpu.count", &long, format!("is \"{}\"… (4096 bytes);", "9".repeat(256))),
            ("vgpu.type", "a\n\u{1b}[2J", r#"vgpu.type is "a\n\u{1b}[2J"; a type name is"#.to_owned()),
            ("vgpu.type", "../x", r#"is "../x";"#.to_owned()),
            ("vgpu.memory", "10", r#"vgpu.memory is "10"; memory is"#.to_owned()),
            ("vgpu.cuont", "1", r#"unknown annotation "vgpu.cuont" (it is "1"); known are"#.to_owned()),
            ("vgpu.", "", r#"unknown annotation "vgpu." (it is "");"#.to_owned()),
        ] {
            let error = request(&[(key, value)], &[]).unwrap().unwrap_err();
            assert_eq!(error.exit, Exit::Request);
            assert!(error.to_string().contains(&shown), "{error}");
            assert!(!error.to_string().contains(['\n', '\x1b']), "{error}");
        }
    }

    fn want(
        count: &str,
        kind: Option<&str>,
        memory: Option<&str>,
        default: Option<&str>,
    ) -> Result<Vec<String>> {
        let policy = RequestPolicy {
            default_type: default.map(|t| t.parse().unwrap()),
            allow_env: true,
            max_per_container: std::num::NonZeroU32::new(8),
        };
        let request = Request {
            count: count.parse().unwrap(),
            kind: kind.map(|t| t.parse().unwrap()),
            memory: memory.map(|t| t.parse().unwrap()),
        };
        let names = ["small", "large", "slow", "mig", "far"].map(|name| name.parse().unwrap());
        let has = [
            ("10GiB", Some(25)),
            ("40GiB", Some(100)),
            ("10GiB", Some(10)),
            ("20GiB", None),
            ("80GiB", Some(1)),
        ];
        let offered = |(name, (memory, compute)): (_, (&str, Option<i64>))| Offered {
            name,
            memory: memory.parse().unwrap(),
            compute: compute.map(|compute| compute.try_into().unwrap()),
            isolation: if name.as_str() == "far" { Isolation::Remote } else { Isolation::None },
        };
        let want = request.want(&policy, &names.iter().zip(has).map(offered).collect::<Vec<_>>())?;
        Ok(want.kinds.iter().map(|kind| kind.to_string()).collect())
    }

    #[test]
    fn the_type_is_named_filled_in_or_any() {
        assert_eq!(want("1", Some("large"), None, Some("small")).unwrap(), ["large"]);
        assert_eq!(want("1", None, None, Some("small")).unwrap(), ["small"]);
        assert_eq!(want("1", Some("far"), None, None).unwrap(), ["far"]);
        assert_eq!(want("1", None, None, Some("far")).unwrap(), ["far"]);
        assert_eq!(want("1", None, None, None).unwrap(), ["small", "large", "slow", "mig"]);
    }

    #[test]
    fn memory_means_the_smallest_type_that_has_it() {
        assert_eq!(want("1", None, Some("1GiB"), Some("large")).unwrap(), ["slow"]);
        assert_eq!(want("1", None, Some("11GiB"), None).unwrap(), ["mig"]);
        assert_eq!(want("1", None, Some("21GiB"), None).unwrap(), ["large"]);
        assert_eq!(want("1", Some("large"), Some("1GiB"), None).unwrap(), ["large"]);
    }

    #[test]
    fn what_no_pool_could_serve() {
        for (error, part) in [
            (want("1", Some("huge"), None, None), r#"cut into type "huge"; there is small (10GiB), large"#),
            (want("1", None, Some("41GiB"), None), "with 41GiB of memory; there is"),
            (
                want("1", Some("small"), Some("11GiB"), None),
                "type small and 11GiB of memory, but that type has 10GiB",
            ),
            (want("9", None, None, None), "asks for 9 vGPUs; at most 8"),
            // By its name alone: whoever wants so much memory wants a GPU.
            (want("1", None, Some("41GiB"), None), "mig (20GiB), far (80GiB, by its name alone)"),
            (want("2", Some("far"), None, None), "asks for 2 vGPUs of type far, which workers serve"),
        ] {
            let error = error.unwrap_err();
            assert_eq!(error.exit, Exit::Request);
            assert!(error.to_string().contains(part), "{error}");
        }
    }
}
