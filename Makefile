# What people run. Settings: make run ADDR=127.0.0.1:8080 DATA=./data

SHELL := /bin/bash
CARGO ?= cargo
ADDR ?= 127.0.0.1:8080
DATA ?= ./data
ROUNDS ?= 40
SECONDS ?= 60

.PHONY: run test crash load bench bench-full lint features doc

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

# Drives a server for SECONDS from a second process: no 5xx, no acknowledged write lost, threads and memory flat.
load:
	@$(CARGO) build --release --locked --bin vayu-articles --example load
	@LOAD_PROGRAM=target/release/vayu-articles LOAD_SECONDS="$(SECONDS)" target/release/examples/load

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

# Each set of features builds alone, and the program with all of them.
features:
	for set in '' sinks server cli nats server,cli cli,nats server,nats; do \
	  echo "features: $${set:-none}"; $(CARGO) check --locked --quiet --lib --no-default-features --features "$$set" || exit 1; \
	done
	$(CARGO) check --locked --quiet --bins --all-features

doc:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --all-features --no-deps
