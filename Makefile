# run     the demo: gateway + scripted upstream + one streamed reply with usage and cost; needs no development tools (WHEEL=dist/*.whl needs no Rust)
# setup   a .venv with the wheel and the development tools
# test    everything that must pass; its stages: test-rust test-unit test-contract test-e2e test-soak test-clients test-wheel test-docs
#         test-alone
# nightly what takes longer than that: every test at full size, the long soaks, a hundred kills, fuzzing
# node-clients   the clients for Node.js that some tests run; without them these tests are skipped
# soak    ten minutes of 500 streams with faults: nothing lost, doubled or kept; HOSTILE=1: of honest ones among hostile
# hostile each hostile client and upstream among honest streams, as a table (some five minutes); writes docs/hostile.md
# matrix  each client API over each upstream API with each kind of reply, as a table; writes docs/matrix.md
# real-…  a real server, installed below .real, behind the gateway, checked; writes its row of docs/upstreams.md:
#         real-llama-cpp real-vllm real-transformers real-llama-cpp-python real-llms-py real-guidellm
# crash   a hundred gateways killed under load, and a hundred whose machines lose power: the ledger agrees with the
#         upstream's own book
# check   formatting and simple lints (lint: only these), clippy, types, the stub
# bench   the engine beside other libraries;  bench-load: the whole gateway beside other proxies
# fuzz    each fuzz target for SECONDS_EACH seconds
# wheel   the wheel and the source distribution in dist/
# release all that a release consists of in dist/: wheels for each platform, checked, components, checksums (20 minutes)
#
# PROFILE=quick builds in a quarter of the time what is nearly as fast as PROFILE=release, and PROFILE=dev in an eighth
# what is slow. Unless PROFILE says otherwise, wheels and measurements are release builds, the demo is a dev build, and
# all else is a quick one.

PYTHON ?= python3
VENV ?= .venv
RUN_VENV ?= .venv-run
BIN = $(VENV)/bin
TARGET = $(or $(CARGO_TARGET_DIR),target)
SECONDS_EACH ?= 20
PROFILE ?= $(if $(filter wheel bench%,$(MAKECMDGOALS)),release,$(if $(filter run,$(MAKECMDGOALS)),dev,quick))
DIST = $(if $(filter wheel,$(MAKECMDGOALS)),dist,$(TARGET)/dist-$(PROFILE))
# What is given to others runs with older C libraries as well: zig links against theirs.
OLD_GLIBC = $(if $(filter wheel,$(MAKECMDGOALS)),--zig --compatibility manylinux_2_28)
RUST_SOURCES = $(shell find rust -path rust/fuzz -prune -o \( -name '*.rs' -o -name Cargo.toml \) -print) Cargo.toml Cargo.lock
SOURCES = $(RUST_SOURCES) $(shell find python -name '*.py' -o -name '*.pyi') pyproject.toml README.md LICENSE
# What pyproject.toml says is needed: to build, and to run.
required = $(shell $(PYTHON) -c 'import shlex, tomllib; \
    print(shlex.join(tomllib.load(open("pyproject.toml", "rb"))$(1)))' 2>/dev/null)
BUILD_REQUIRES = $(call required,["build-system"]["requires"])
RUN_REQUIRES = $(call required,["project"]["dependencies"])
NEEDS_PYTHON = @$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "Python 3.11 or later is needed"'

.DEFAULT_GOAL = help
.PHONY: help setup run node-clients soak hostile matrix check lint format bench bench-core bench-load fuzz wheel release clean

help:
	@sed -n 's/^# \{0,1\}//p' Makefile

$(BIN)/activate:
	$(NEEDS_PYTHON)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'

$(VENV)/.tools: pyproject.toml | $(BIN)/activate
	$(BIN)/python -m pip install --quiet --group dev
	@touch $@

$(DIST)/.built: $(SOURCES) | $(VENV)/.tools
	@mkdir -p $(DIST) && rm -f $(DIST)/*.whl $(DIST)/*.tar.gz
	$(if $(OLD_GLIBC),$(BIN)/python -m pip install --quiet --group wheel)
	PATH=$(abspath $(BIN)):$$PATH VIRTUAL_ENV=$(abspath $(VENV)) \
	    $(BIN)/maturin build --profile $(PROFILE) --locked --quiet $(OLD_GLIBC) --out $(DIST)
	VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/maturin sdist --out $(DIST)
	@touch $@

wheel: $(DIST)/.built

release: | $(VENV)/.tools
	$(BIN)/python -m pip install --quiet --group release
	$(BIN)/python -m deploy.release

$(VENV)/.installed-$(PROFILE): $(DIST)/.built $(VENV)/.tools
	$(BIN)/python -m pip install --quiet $(DIST)/*.whl
	$(BIN)/python -m pip install --quiet --force-reinstall --no-deps $(DIST)/*.whl
	@rm -f $(VENV)/.installed-* && touch $@

setup: $(VENV)/.installed-$(PROFILE)

# Stages run side by side, the longest first; what one of them prints comes when it has ended. Each process of a stage
# has to read all of its tests: only those that mostly wait have more processes than there are cores.
WORKERS ?= 2
AT_ONCE ?= 4
test-e2e: WORKERS = 4
test-unit: WORKERS = 3
# So few tests that another process costs more than it saves.
test-docs test-wheel: WORKERS = 0
RERUN = tests/rerun.py
# Where a file of tests has a gateway for all its tests, one process runs all of them.
TOGETHER = -n $(WORKERS) --dist loadscope -m 'not alone$(if $(NIGHTLY),, and not nightly)'
STAGES = test-e2e test-contract test-rust test-unit test-clients test-soak test-docs test-wheel test-alone
.PHONY: test $(STAGES)

test: setup
	@$(BIN)/python $(RERUN) --begin
	@SLUICEGATE_TEST_RUN=1 $(MAKE) --no-print-directory --keep-going --jobs=$(AT_ONCE) \
	    $(if $(filter output-sync,$(.FEATURES)),--output-sync=target) $(STAGES); failed=$$?; \
	    $(BIN)/python $(RERUN) --end && exit $$failed

test-rust:
	@$(PYTHON) $(RERUN) $@ cargo

test-unit: setup
	@$(BIN)/python $(RERUN) $@ pytest $(TOGETHER) --dist worksteal tests/unit tests/house

test-contract: setup
	@$(BIN)/python $(RERUN) $@ pytest $(TOGETHER) tests/contract tests/matrix

test-e2e: setup
	@$(BIN)/python $(RERUN) $@ pytest $(TOGETHER) tests/e2e

test-alone: setup
	@$(BIN)/python $(RERUN) --alone $@ pytest -m alone tests/e2e/test_front_gil.py tests/e2e/test_front_large.py

test-soak: setup
	@$(BIN)/python $(RERUN) $@ pytest $(TOGETHER) tests/soak tests/hostile

test-clients: setup
	@$(BIN)/python $(RERUN) $@ pytest $(TOGETHER) tests/clients

test-wheel: setup
	@SLUICEGATE_TEST_DIST=$(abspath $(DIST)) $(BIN)/python $(RERUN) $@ pytest $(TOGETHER) --dist load tests/wheel

# Until there are such tests the stage is empty.
test-docs: setup
	@$(if $(wildcard tests/docs),$(BIN)/python $(RERUN) $@ pytest $(TOGETHER) tests/docs,echo "test-docs: there are none")

soak: setup
	PYTHONPATH=tests $(BIN)/python -m soak $(if $(HOSTILE),--hostile --picture docs/assets/hostile-soak.svg)

hostile: setup
	PYTHONPATH=tests $(BIN)/python -m hostile --page docs/hostile.md

matrix: setup
	PYTHONPATH=tests $(BIN)/python -m matrix --page docs/matrix.md

REAL = llama-cpp vllm transformers llama-cpp-python llms-py guidellm
.PHONY: $(REAL:%=real-%)

$(REAL:%=real-%): real-%: setup
	PYTHONPATH=tests $(BIN)/python -m real $* --page docs/upstreams.md

crash: setup
	SLUICEGATE_LEDGER_CRASHES=100 $(BIN)/python -m pytest -q tests/e2e/test_ledger_crashes.py

# Strict: a test that needed a second try must be in quarantine.
.PHONY: nightly
nightly:
	$(MAKE) test NIGHTLY=1 STRICT=1
	$(MAKE) crash
	$(MAKE) soak
	$(MAKE) soak HOSTILE=1
	$(MAKE) fuzz SECONDS_EACH=600

node-clients:
	npm ci --prefix tests/clients/node --no-audit --no-fund --loglevel=error

check: setup lint
	cargo clippy --workspace --all-targets --locked --quiet -- -D warnings
	git ls-files -z 'python/*.py' 'python/*.pyi' 'tests/*.py' 'deploy/*.py' | xargs -0 $(BIN)/mypy
	$(BIN)/python -m mypy.stubtest sluicegate._core

# What lies beside the project's own files is not looked at: git knows which these are.
PYTHON_FILES = git ls-files -z '*.py' '*.pyi'

lint:
	cargo fmt --all --check
	$(PYTHON_FILES) | xargs -0 $(BIN)/ruff check
	$(PYTHON_FILES) | xargs -0 $(BIN)/ruff format --check

format:
	cargo fmt --all
	$(PYTHON_FILES) | xargs -0 $(BIN)/ruff check --fix
	$(PYTHON_FILES) | xargs -0 $(BIN)/ruff format

bench bench-core: setup
	@$(BIN)/python -c 'import httpx_sse, openai, orjson, pytest_benchmark, simdjson, sseclient' 2>/dev/null \
	    || $(BIN)/python -m pip install --quiet --group bench
	cargo bench -p sluicegate-bench-core --locked --quiet
	$(BIN)/python -m pytest -p benchmark benches/boundary --benchmark-only --quiet --benchmark-json=$(TARGET)/bench-boundary.json
	@$(BIN)/python -m benches.table $(TARGET)/criterion $(TARGET)/bench-boundary.json

fuzz:
	rust/fuzz/run.sh $(SECONDS_EACH)

bench-load: setup
	$(BIN)/python -m benches.load --install
	$(BIN)/python -m benches.load

# An environment of its own, with what the gateway needs to run, and maturin where there is something to build. What it
# needs is installed while the compiler works.
RUN_PIP = $(RUN_VENV)/bin/python -m pip install --quiet --disable-pip-version-check
RUN_DIST = $(TARGET)/dist-run
$(RUN_VENV)/.built: $(if $(WHEEL),$(wildcard $(WHEEL)),$(SOURCES))
	$(NEEDS_PYTHON)
	@test -e $(RUN_VENV)/bin/pip || $(PYTHON) -m venv $(RUN_VENV)
ifdef WHEEL
	$(RUN_PIP) --force-reinstall $(wildcard $(WHEEL))
else
	@echo 'Compiling the extension and the Rust libraries that it needs: about a minute on two cores.'
	@$(RUN_PIP) $(BUILD_REQUIRES)
	@rm -rf $(RUN_DIST)
	@$(RUN_PIP) $(RUN_REQUIRES) & libraries=$$!; \
	    PATH=$(abspath $(RUN_VENV))/bin:$$PATH VIRTUAL_ENV=$(abspath $(RUN_VENV)) \
	    maturin build --profile $(PROFILE) --locked --out $(RUN_DIST) && wait $$libraries
	@$(RUN_PIP) --force-reinstall --no-deps $(RUN_DIST)/*.whl
endif
	@touch $@

run: $(RUN_VENV)/.built
	@$(RUN_VENV)/bin/sluicegate demo

clean:
	rm -rf $(VENV) $(RUN_VENV) target dist
