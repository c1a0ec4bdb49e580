//! System B: GPU calls of a container, answered inside it where they can be, sent to a worker where not.
//! `docs/reuse.md` explains the design.
//!
//! ```text
//!  client process                          shared memory              worker
//!
//!  session ── reuse ── slots               contents ────────────────► contents::Seen ─┐
//!     │         ├───── predictor, iteration                                           ▼
//!     │         └───── contents::Contents                             worker ──► cudnn::backend::Backend
//!     └── memo, channel::Client ─────────► ring ────────────────────► channel::serve ─┘
//!                      ◄────────────────── reply ◄────────────────────┘
//! ```
//!
//! Pure: [`cudnn`] (contents and rules), [`cublas`], [`api`] (what tables are made of), [`descriptor`], [`wire`], [`predictor`],
//! [`iteration`], [`memo`], `deferred`. Shared memory, without `unsafe`: [`contents`], [`ring`], [`reply`], [`staging`], `counters`.
//! The system: `channel`, `memory`, `cpu`, the program `server` with `confine`, `watch` and `status`, and `sys`, which has
//! all `unsafe`.

pub mod api;
#[cfg(not(loom))]
pub mod channel;
#[cfg(not(loom))]
pub mod confine;
pub mod contents;
#[cfg(not(loom))]
pub mod counters;
#[cfg(not(loom))]
pub mod cpu;
pub mod cublas;
pub mod cudnn;
#[cfg(not(loom))]
pub mod deferred;
pub mod descriptor;
#[cfg(not(loom))]
pub mod device;
#[cfg(not(loom))]
pub mod filter;
#[cfg(test)]
mod fingerprint;
#[cfg(not(loom))]
pub mod host;
pub mod iteration;
pub mod memo;
#[cfg(not(loom))]
pub mod memory;
#[cfg(not(loom))]
pub mod pinned;
#[cfg(not(loom))]
pub mod places;
pub mod predictor;
pub mod reply;
#[cfg(not(loom))]
pub mod reuse;
pub mod ring;
#[cfg(not(loom))]
pub mod server;
#[cfg(not(loom))]
pub mod session;
pub mod slot;
#[cfg(not(loom))]
pub mod slots;
pub mod staging;
#[cfg(not(loom))]
pub mod status;
pub mod sync;
#[cfg(not(loom))]
pub mod sys;
#[cfg(not(loom))]
pub mod watch;
pub mod wire;
#[cfg(not(loom))]
pub mod worker;
