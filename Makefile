# `make demo` shows what vgpu does, `make test` tests it, `make lint` reads it, `make bench` measures it; each
# installs what it misses.
# `make install` puts the program and the hook files of one kind into place (DESTDIR and PREFIX as usual).
.PHONY: bench demo install lint test

PREFIX = /usr
DESTDIR =
# `annotation`: hooks run for containers with a vgpu. annotation; `environment`: for all, so that VGPU_… can ask.
HOOKS = annotation

demo:
	tests/setup.sh demo
	cargo build --release --locked
	tests/demo.sh target/release/vgpu

install:
	cargo build --release --locked
	install -D -m 755 target/release/vgpu $(DESTDIR)$(PREFIX)/bin/vgpu
	install -d -m 755 $(DESTDIR)/etc/containers/oci/hooks.d
	for file in hooks/hooks.d/$(HOOKS)/*.json; do \
		sed 's,/usr/bin/vgpu,$(PREFIX)/bin/vgpu,' $$file \
			>$(DESTDIR)/etc/containers/oci/hooks.d/$${file##*/} || exit; \
	done

lint:
	tests/setup.sh lint
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --locked --quiet
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
