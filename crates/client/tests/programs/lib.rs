//! Nothing: what is built here is of the dev-dependencies, and of `examples`.
