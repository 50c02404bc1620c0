# What people run. Settings: make run ADDR=127.0.0.1:8080 DATA=./data

SHELL := /bin/bash
CARGO ?= cargo
ADDR ?= 127.0.0.1:8080
DATA ?= ./data
ROUNDS ?= 40

.PHONY: run test crash bench bench-full lint doc

# Builds in release, fills an empty database with samples/, serves, and prints the address and what to try.
run:
	@$(CARGO) build --release --locked --bin vayu-articles
	@exec target/release/vayu-articles serve --addr "$(ADDR)" --data "$(DATA)" --seed samples

# Every test. Ends with one line: how many passed and how many failed, over all test programs.
test:
	@set -o pipefail; $(CARGO) test --locked --all-features --no-fail-fast 2>&1 | awk '\
	  { print; fflush() } \
	  /^test result:/ { passed += $$4; failed += $$6 } \
	  END { printf "%d passed, %d failed\n", passed, failed }'

# Kills writing and delivering processes ROUNDS times, then counts what is lost, doubled or out of order.
crash:
	@ROUNDS="$(ROUNDS)" $(CARGO) test --locked --quiet --test crash

# The speed figures in under a minute, one `name value unit` a line.
bench:
	@$(CARGO) bench --locked --bench speed

# The same with the large sizes, and publishing to a broker if nats-server is installed.
bench-full:
	@VAYU_BENCH=full $(CARGO) bench --locked --features nats --bench speed

lint:
	$(CARGO) fmt --check
	$(CARGO) clippy --locked --all-targets --all-features -- -D warnings
	$(CARGO) clippy --locked --all-targets --no-default-features -- -D warnings

doc:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --all-features --no-deps
