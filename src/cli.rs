//! cli

pub mod config;
