# The commands of this repository: `make lint`, `make test` and `make bench`. They install what they miss.
.PHONY: lint test bench

lint:
	tests/setup.sh lint
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	grep -rlE '^#!/bin/(ba)?sh' --exclude-dir=target --exclude-dir=.git . | xargs shellcheck

# Tests that need root are marked as ignored with the reason: root runs them all, others see which were left out.
# The test double of the driver's library is a shared object, which `cargo test` alone would not build.
ifeq ($(shell id -u),0)
test:
	tests/setup.sh test
	cargo build --workspace --locked
	cargo test --workspace --locked -- --include-ignored
else
test:
	cargo build --workspace --locked
	cargo test --workspace --locked
	@echo 'Left out, because they need root:'
	@cargo test --workspace --locked --quiet -- --ignored --list --format terse 2>/dev/null | grep ': test$$'
endif

# Nothing passes or fails: tables of what the hook costs. Wants root, and a machine that does nothing else.
bench:
	tests/setup.sh bench
	cargo bench --locked --bench figures
