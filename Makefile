# `make demo` shows what vgpu does, `make test` tests it, `make lint` reads it, `make bench` measures it, `make crash`
# breaks all that it does, `make fuzz` all that it reads of an image; each installs what it misses.
# `make install` puts the program and the hook files of one kind into place (DESTDIR and PREFIX as usual),
# `make uninstall` takes them away, with the same DESTDIR, PREFIX and HOOKS_DIR.
# `make demo-reuse` shows a container without a GPU that trains through a worker.
# `make conformance` compares descriptor rules with the real cuDNN, which it downloads; `make miri` looks for undefined
# behaviour where memory is shared.
.PHONY: bench conformance crash demo demo-reuse fuzz install lint miri test uninstall

PREFIX = /usr
DESTDIR =
# `annotation`: hooks run for containers with a vgpu. annotation; `environment`: for all, so that VGPU_… can ask.
HOOKS = annotation
# What containers of types with `isolation = "remote"` need, and the host for them: beside bin.
REMOTE = $(DESTDIR)$(PREFIX)/lib/vgpu
FACADES = $(notdir $(wildcard crates/facades/lib*))
# Where podman looks for them (`podman --help`, --hooks-dir).
HOOKS_DIR = /usr/share/containers/oci/hooks.d

demo:
	tests/setup.sh demo
	cargo build --release --locked
	tests/demo.sh target/release/vgpu

demo-reuse:
	tests/setup.sh demo
	$(MAKE) install DESTDIR='$(CURDIR)/target/demo' PREFIX= HOOKS_DIR=/hooks.d
	tests/demo-remote.sh target/demo

install:
	@test -d hooks/hooks.d/$(HOOKS) || { echo 'HOOKS is annotation or environment' >&2; exit 64; }
	cargo build --release --locked
	cargo build --workspace --exclude vgpu --exclude fake-nvml --release --locked
	install -D -m 755 target/release/vgpu $(DESTDIR)$(PREFIX)/bin/vgpu
	install -D -m 755 target/release/vgpu-worker $(REMOTE)/vgpu-worker
	install -m 644 target/release/libvgpu_client.so $(REMOTE)/libvgpu_client.so
	for name in $(FACADES); do \
		install -m 644 target/release/libvgpu_$$(echo $$name | sed 's/^lib//; s/\.so\./_/').so $(REMOTE)/$$name || exit 1; \
	done
	install -D -m 644 hooks/hooks.json $(DESTDIR)$(PREFIX)/share/vgpu/hooks.json
	install -d -m 755 $(DESTDIR)$(HOOKS_DIR)
	install -m 644 hooks/hooks.d/$(HOOKS)/*.json $(DESTDIR)$(HOOKS_DIR)
	sed -i 's,/usr/bin/vgpu,$(PREFIX)/bin/vgpu,' $(DESTDIR)$(PREFIX)/share/vgpu/hooks.json \
		$(DESTDIR)$(HOOKS_DIR)/50-vgpu-*.json

# The hooks first: one whose program is missing fails every container that it is for. The rest is removed by its names.
uninstall:
	rm -f $(DESTDIR)$(HOOKS_DIR)/50-vgpu-*.json
	rm -f $(DESTDIR)$(PREFIX)/share/vgpu/hooks.json $(DESTDIR)$(PREFIX)/bin/vgpu
	rm -f $(REMOTE)/vgpu-worker $(REMOTE)/libvgpu_client.so $(addprefix $(REMOTE)/,$(FACADES))
	for dir in $(DESTDIR)$(PREFIX)/share/vgpu $(REMOTE); do \
		[ ! -d $$dir ] || rmdir --ignore-fail-on-non-empty $$dir || exit 1; \
	done

lint:
	tests/setup.sh lint
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo fmt --manifest-path fuzz/Cargo.toml --check
	cargo fmt --manifest-path crates/client/tests/programs/Cargo.toml --check
	cargo clippy --manifest-path fuzz/Cargo.toml --target-dir target --no-default-features --locked -- -D warnings
	RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --locked --quiet
	grep -rlE '^#!/bin/(ba)?sh' --exclude-dir=target --exclude-dir=.git . | xargs shellcheck

# All orders of what two sides do with shared memory, as far as that ends in seconds.
LOOM = RUSTFLAGS='--cfg loom' cargo test -p vgpu-remoting --lib --locked --target-dir target/loom loom_tests
# What descriptor reuse comes to without a comparison, and of what lives.
BLIND = cargo test -p vgpu-remoting --test blind --features blind --locked

# Tests that need root are marked as ignored with the reason: root runs them all, others see which were left out.
# The test double of the driver's library is a shared object, which `cargo test` alone would not build.
ifeq ($(shell id -u),0)
test:
	tests/setup.sh test
	cargo build --workspace --locked
	cargo test --workspace --locked -- --include-ignored
	$(LOOM)
	$(BLIND)
	$(MAKE) fuzz
else
test:
	cargo build --workspace --locked
	cargo test --workspace --locked
	$(LOOM)
	$(BLIND)
	@echo 'Left out, because they need root:'
	@cargo test --workspace --locked --quiet -- --ignored --list --format terse 2>/dev/null | grep ': test$$'
endif

# Not in CI, which has a transcript of the real answers instead.
conformance:
	crates/remoting/tests/conformance.sh

# All that can go wrong with a hook's system calls, where `make test` takes a sample. Wants root and half an
# hour; VGPU_SEED chooses the sample again that a test said it had.
crash:
	tests/setup.sh test
	cargo build --workspace --locked
	VGPU_CRASH=all cargo test --locked --test crash -- --include-ignored

# Wants a nightly compiler with the component `miri`. What maps memory, and what takes minutes there, is left out.
MIRI = MIRIFLAGS='-Zmiri-strict-provenance -Zmiri-ignore-leaks' cargo +nightly miri test -p vgpu-remoting --locked \
	--target-dir target/miri

miri:
	$(MIRI) --lib -- slot:: slots:: contents:: ring:: reply:: wire:: iteration::
	$(MIRI) --test reuse -- --skip a_shape_that_changes --skip a_full_table --skip passes_on_threads

# Each target for this long, in seconds; with one seed (0: another each time) inputs are tried in one order, as far as
# they come. Those that led further are kept in target/fuzz, and one that fails, too.
FUZZ_SECONDS = 10
FUZZ_SEED = 1
FUZZ_TARGETS = ldcache elf note worker
# What `cargo fuzz` gives to the compiler, but for AddressSanitizer: that wants a nightly one, and what is fuzzed is
# safe Rust.
FUZZ_FLAGS = -Cpasses=sancov-module $(addprefix -Cllvm-args=-sanitizer-coverage-,level=4 inline-8bit-counters pc-table \
	trace-compares)
FUZZ_HOST = $(shell rustc --print host-tuple)

fuzz:
	tests/setup.sh fuzz
	RUSTFLAGS='$(FUZZ_FLAGS)' cargo build --manifest-path fuzz/Cargo.toml --target-dir target/fuzz \
		--target $(FUZZ_HOST) --release --locked
	@set -e; for target in $(FUZZ_TARGETS); do \
		mkdir -p target/fuzz/corpus/$$target; \
		echo "fuzzing $$target for $(FUZZ_SECONDS) s"; \
		target/fuzz/$(FUZZ_HOST)/release/$$target -seed=$(FUZZ_SEED) -max_total_time=$(FUZZ_SECONDS) \
			-timeout=5 -rss_limit_mb=256 -verbosity=0 -print_final_stats=1 \
			-artifact_prefix=target/fuzz/$$target- target/fuzz/corpus/$$target fuzz/seeds/$$target \
			>target/fuzz/$$target.log 2>&1 || { cat target/fuzz/$$target.log; exit 1; }; \
		grep number_of_executed_units target/fuzz/$$target.log; \
	done

# Nothing passes or fails: tables of what the hook costs. Wants root, and a machine that does nothing else.
bench:
	tests/setup.sh bench
	cargo bench --locked --bench figures
