//! cli
pub mod discover;
