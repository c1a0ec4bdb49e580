# `make demo` shows what vgpu does, `make test` tests it, `make lint` reads it, `make bench` measures it, `make crash`
# breaks all that it does; each installs what it misses.
# `make install` puts the program and the hook files of one kind into place (DESTDIR and PREFIX as usual),
# `make uninstall` takes them away.
# `make conformance` compares descriptor rules with the real cuDNN, which it downloads.
.PHONY: bench conformance crash demo install lint test uninstall

PREFIX = /usr
DESTDIR =
# `annotation`: hooks run for containers with a vgpu. annotation; `environment`: for all, so that VGPU_… can ask.
HOOKS = annotation
# Where podman looks for them (`podman --help`, --hooks-dir).
HOOKS_DIR = /usr/share/containers/oci/hooks.d

demo:
	tests/setup.sh demo
	cargo build --release --locked
	tests/demo.sh target/release/vgpu

install:
	@test -d hooks/hooks.d/$(HOOKS) || { echo 'HOOKS is annotation or environment' >&2; exit 64; }
	cargo build --release --locked
	install -D -m 755 target/release/vgpu $(DESTDIR)$(PREFIX)/bin/vgpu
	install -D -m 644 hooks/hooks.json $(DESTDIR)$(PREFIX)/share/vgpu/hooks.json
	install -d -m 755 $(DESTDIR)$(HOOKS_DIR)
	install -m 644 hooks/hooks.d/$(HOOKS)/*.json $(DESTDIR)$(HOOKS_DIR)
	sed -i 's,/usr/bin/vgpu,$(PREFIX)/bin/vgpu,' $(DESTDIR)$(PREFIX)/share/vgpu/hooks.json \
		$(DESTDIR)$(HOOKS_DIR)/50-vgpu-*.json

# The hooks first: one whose program is missing fails every container that it is for.
uninstall:
	rm -f $(DESTDIR)$(HOOKS_DIR)/50-vgpu-*.json
	rm -f $(DESTDIR)$(PREFIX)/share/vgpu/hooks.json $(DESTDIR)$(PREFIX)/bin/vgpu

lint:
	tests/setup.sh lint
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --locked --quiet
	grep -rlE '^#!/bin/(ba)?sh' --exclude-dir=target --exclude-dir=.git . | xargs shellcheck

# All orders of what two sides do with shared memory, as far as that ends in seconds.
LOOM = RUSTFLAGS='--cfg loom' cargo test -p vgpu-remoting --lib --locked --target-dir target/loom loom_tests

# Tests that need root are marked as ignored with the reason: root runs them all, others see which were left out.
# The test double of the driver's library is a shared object, which `cargo test` alone would not build.
ifeq ($(shell id -u),0)
test:
	tests/setup.sh test
	cargo build --workspace --locked
	cargo test --workspace --locked -- --include-ignored
	$(LOOM)
else
test:
	cargo build --workspace --locked
	cargo test --workspace --locked
	$(LOOM)
	@echo 'Left out, because they need root:'
	@cargo test --workspace --locked --quiet -- --ignored --list --format terse 2>/dev/null | grep ': test$$'
endif

# Not in CI, which has a transcript of the real answers instead.
conformance:
	crates/remoting/tests/conformance.sh

# All that can go wrong with a hook's system calls, where `make test` takes a sample. Wants root and a quarter of an
# hour; VGPU_SEED chooses the sample again that a test said it had.
crash:
	tests/setup.sh test
	cargo build --workspace --locked
	VGPU_CRASH=all cargo test --locked --test crash -- --include-ignored

# Nothing passes or fails: tables of what the hook costs. Wants root, and a machine that does nothing else.
bench:
	tests/setup.sh bench
	cargo bench --locked --bench figures
