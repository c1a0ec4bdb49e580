//! What the kernel must be told so that a container has what its plan says.

pub mod cgroup_v1;
pub mod cgroup_v2;
