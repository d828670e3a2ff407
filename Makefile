# One command each: `make test` runs everything, `make check` what a change must pass before review.
# Every target does its own set-up.

CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
VERSIONS ?= 18
POSTGRES := $(abspath $(TARGET))/postgres

.PHONY: help
help:
	@echo "make test        unit, property, golden and integration tests on real PostgreSQL servers"
	@echo "make acceptance  the same at full size: 200,000 transactions, rows by the million"
	@echo "make check       formatting, lints, documentation"
	@echo "make postgres    fetch PostgreSQL servers for the tests (VERSIONS=\"16 17 18\")"

.PHONY: tools
tools:
	@tests/scripts/install-tools compiler postgres

.PHONY: postgres
postgres:
	@tests/scripts/fetch-postgres $(POSTGRES) $(VERSIONS)
