//! vgpu: containers on one Linux host share its GPUs safely.
//!
//! One direction, one type per step; only [`hook`] knows the order (and `cli::plan`, which follows it up to the plan):
//!
//! ```text
//!  state (stdin) + config.json          pool.toml + leases             NVML, once per boot
//!             │                                │                              │
//!             ▼                                ▼                              ▼
//!       request::Request ───────────►  pool::Lease  ──────►  resolve::Plan ◄── gpu::Inventory
//!       how many, what type            which vGPUs, whose    all that goes into one container
//!                                                                  │
//!                                                                  ▼
//!                                                             inject::live
//! ```
//!
//! Pure, tested without root: [`types`], [`device_rule`], [`oci`], [`request`], [`config`], [`pool`],
//! [`access`], [`compat`], [`resolve`], [`elf`], [`ldcache`], [`mounts`]. Touch the kernel: [`files`], [`gpu`], [`driver`], [`host`],
//! [`cgroup`], [`container`] and [`trust`] (read), [`pool::store`], [`pool::liveness`], [`journal`], [`inject`], [`sys`].

pub mod access;
pub mod cgroup;
pub mod cli;
pub mod compat;
pub mod config;
pub mod container;
pub mod device_rule;
pub mod driver;
pub mod elf;
pub mod error;
pub mod files;
pub mod gpu;
pub mod hook;
pub mod host;
pub mod inject;
pub mod journal;
pub mod ldcache;
pub mod mounts;
pub mod oci;
pub mod pool;
pub mod remote;
pub mod request;
pub mod resolve;
pub mod sys;
pub mod trust;
pub mod types;
