# One command each: `make test` runs everything, `make check` what a change must pass before review.
# Every target does its own set-up.

CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
VERSIONS ?= 18
# What the tests compare with: every version that a source may have.
ALL_VERSIONS := 14 15 16 17 18
POSTGRES := $(abspath $(TARGET))/postgres

.PHONY: help
help:
	@echo "make demo        everything once, on a private PostgreSQL (KEEP=1 leaves it running)"
	@echo "make test        unit, property, golden and integration tests on real PostgreSQL servers"
	@echo "make sim         the log and the decoder on a simulated disk with faults: 100,000 seeds (SEEDS=1000, SEED=7 replays one)"
	@echo "make fuzz        every parser under libFuzzer, TIME=60 seconds each (FUZZ=\"pgoutput grammar\" for some)"
	@echo "make crash       kill -9 of decoder and fanout under load, ROUNDS=500 at failpoints and 500 at random moments"
	@echo "make acceptance  the same at full size: 200,000 transactions, rows by the million"
	@echo "make bench       native slots and Decant, measured side by side (BENCH=\"fan_out latency\", SCALE=0.1)"
	@echo "make check       formatting, lints, documentation"
	@echo "make postgres    fetch PostgreSQL servers for the tests (VERSIONS=\"16 17 18\")"

# One publisher, one decoder, two fanouts, two subscribers, pgbench. KEEP=1 leaves everything running.
.PHONY: demo
demo: tools
	$(CARGO) build --release -p decoder -p fanout -p decctl -p tests --bins
	@KEEP=$(KEEP) $(abspath $(TARGET))/release/demo

.PHONY: tools
tools:
	@tests/scripts/install-tools compiler postgres

.PHONY: postgres
postgres:
	@tests/scripts/fetch-postgres $(POSTGRES) $(VERSIONS)

# The servers that the tests run on: those that are not installed are fetched.
.PHONY: servers
servers: tools
	@tests/scripts/fetch-postgres --if-missing $(POSTGRES) $(ALL_VERSIONS) || \
		{ tests/scripts/install-tools npm && tests/scripts/fetch-postgres --if-missing $(POSTGRES) $(ALL_VERSIONS); }

# Replication clients that others wrote: psycopg, pgjdbc, Debezium, pglogrepl, pg-logical-replication.
.PHONY: clients
clients:
	@tests/scripts/install-clients $(abspath $(TARGET))/clients

# The programs first: integration tests run them, and Cargo does not build other packages' programs for a test.
.PHONY: test
test: servers clients
	$(CARGO) build --workspace --bins
	$(CARGO) test --workspace $(TESTS)

# Decoder, log and readers on a simulated disk, clock and source. SEED=n shows all that happens in one run.
.PHONY: sim
sim: tools
	$(CARGO) build --release -p simulation
	@$(abspath $(TARGET))/release/simulation

# Coverage-guided; make test runs the seeds, former findings and some thousand mutations. Findings go to tests/fuzz/regressions.
TIME ?= 60
.PHONY: fuzz
fuzz:
	@tests/scripts/fuzz $(abspath $(TARGET))/fuzz $(TIME) $(FUZZ)

# Prints how many kills there were, and what was lost, doubled or out of order.
ROUNDS ?= 500
.PHONY: crash
crash: servers
	$(CARGO) build --workspace --bins
	DECANT_SCALE=full DECANT_CRASHES=$(ROUNDS) $(CARGO) test -p tests --test main failpoints:: -- --nocapture

# Failpoints are compiled in where debug assertions are.
.PHONY: acceptance
acceptance: servers clients
	$(CARGO) build --workspace --bins --release
	DECANT_SCALE=full DECANT_BIN_DIR=$(abspath $(TARGET))/release $(CARGO) test -p tests --test main -- \
		--skip failpoints:: $(TESTS)
	$(CARGO) build --workspace --bins
	DECANT_SCALE=full $(CARGO) test -p tests --test main -- failpoints:: $(TESTS)

# Figures to $(TARGET)/bench/results.json, text and charts to tests/load. Targets are about SCALE=1 on a machine that
# does nothing else.
SCALE ?= 1
.PHONY: bench
bench: tools
	$(CARGO) build --workspace --bins --release
	-$(CARGO) build --release --manifest-path tests/load/walstream/Cargo.toml --target-dir $(abspath $(TARGET))/walstream
	BENCH_WALSTREAM=$(abspath $(TARGET))/walstream/release/walstream DECANT_SCALE=full DECANT_BIN_DIR=$(abspath $(TARGET))/release $(abspath $(TARGET))/release/bench $(BENCH) \
		--scale $(SCALE) --results $(abspath $(TARGET))/bench/results.json --report tests/load/RESULTS.md

.PHONY: check
check:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps

# Needs cargo-deny (cargo install cargo-deny).
.PHONY: deny
deny:
	$(CARGO) deny check
