//! System B: GPU calls of a container, answered inside it where they can be, sent to a worker where not.

pub mod api;
#[cfg(not(loom))]
pub mod channel;
pub mod contents;
pub mod cudnn;
pub mod descriptor;
pub mod iteration;
pub mod memo;
pub mod predictor;
pub mod reply;
#[cfg(not(loom))]
pub mod reuse;
pub mod ring;
#[cfg(not(loom))]
pub mod session;
pub mod slots;
pub mod sync;
#[cfg(not(loom))]
pub mod sys;
pub mod wire;
pub mod worker;
