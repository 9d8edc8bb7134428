# setup   a .venv with the package built in release mode and the development tools
# run     the demo: gateway + scripted upstream + one streamed reply with usage and cost
# test    everything that must pass
# node-clients   the clients for Node.js that some tests run; without them these tests are skipped
# soak    ten minutes of 500 streams with faults: nothing lost, doubled or kept
# check   formatting, lints, types, the stub
# bench   the engine beside other libraries;  bench-load: the whole gateway beside other proxies
# fuzz    each fuzz target for some seconds

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
TARGET = $(or $(CARGO_TARGET_DIR),target)
SECONDS_EACH ?= 20
RUST_SOURCES = $(shell find rust -path rust/fuzz -prune -o \( -name '*.rs' -o -name Cargo.toml \) -print) Cargo.toml Cargo.lock

.DEFAULT_GOAL = help
.PHONY: help setup run test test-rust test-python node-clients soak check format bench bench-core bench-load fuzz wheel clean

help:
	@sed -n 's/^# //p' Makefile

$(BIN)/activate:
	@$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "Python 3.11 or later is needed"'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'

$(VENV)/.tools: pyproject.toml | $(BIN)/activate
	$(BIN)/python -m pip install --quiet --group dev
	@touch $@

$(VENV)/.built: $(VENV)/.tools $(RUST_SOURCES)
	VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/maturin develop --release --locked --quiet >/dev/null
	@touch $@

setup: $(VENV)/.built

run: setup
	$(BIN)/sluicegate demo

test: test-rust test-python

test-rust:
	cargo test --workspace --locked --quiet

test-python: setup
	$(BIN)/python -m pytest

soak: setup
	PYTHONPATH=tests $(BIN)/python -m soak

node-clients:
	npm ci --prefix tests/clients/node --no-audit --no-fund --loglevel=error

check: setup
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked --quiet -- -D warnings
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest sluicegate._core

format:
	cargo fmt --all
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench bench-core: setup
	@$(BIN)/python -c 'import httpx_sse, openai, orjson, pytest_benchmark, simdjson, sseclient' 2>/dev/null \
	    || $(BIN)/python -m pip install --quiet --group bench
	cargo bench -p sluicegate-bench-core --locked --quiet
	$(BIN)/python -m pytest benches/boundary --benchmark-only --quiet --benchmark-json=$(TARGET)/bench-boundary.json
	@$(BIN)/python -m benches.table $(TARGET)/criterion $(TARGET)/bench-boundary.json

fuzz:
	rust/fuzz/run.sh $(SECONDS_EACH)

bench-load: setup
	$(BIN)/python -m benches.load --install
	$(BIN)/python -m benches.load

wheel: $(VENV)/.tools
	VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/maturin build --release --sdist --out dist

clean:
	rm -rf $(VENV) target dist
