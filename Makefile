# Every target makes and uses .venv by itself. A stamp in .venv that is newer than
# pyproject.toml says that a set of packages is in place, so nothing is installed twice.

PYTHON ?= python3
DATA ?= ./data
SEEDS ?= 2000
SEED ?=
ARGS ?=
CHECK ?=

BIN := .venv/bin
RUNTIME := .venv/.installed-runtime
DEV := .venv/.installed-dev
BENCH := .venv/.installed-bench
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input install --quiet

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Two recipes at once would install into the same .venv.
.NOTPARALLEL:
.PHONY: help install serve test test-slow check simulate collection docs clean
.PHONY: bench bench-engine bench-http bench-fanout bench-scale bench-spark

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(DEV) ## Make .venv with everything needed to work on Penstock

serve: $(RUNTIME) ## Start the server on 127.0.0.1:8080 (DATA=./data, ARGS="--port 9000")
	@$(BIN)/penstock serve --data "$(DATA)" $(ARGS)

test: JOBS ?= 3
test: $(DEV) ## Run the tests, in three minutes (JOBS=0: in one process; ARGS="-k wal -x")
	@$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m "not slow" $(ARGS)

test-slow: JOBS ?= 2
test-slow: $(DEV) ## Run the tests with Redis and MongoDB, and others that take long
	@$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m slow $(ARGS)

# The tests start some hundred processes: each would compile all of Penstock by itself.
test test-slow: export PYTHONDONTWRITEBYTECODE :=

check: $(DEV) ## Lint, formatting, types, layers, public names
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/unit/test_exports.py

simulate: $(DEV) ## Run random histories with faults (SEEDS=2000, or SEED=n for one)
	@$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED) --verbose,--seeds $(SEEDS))

bench: bench-engine bench-http bench-spark bench-fanout bench-scale ## Run every benchmark (CHECK=1 fails where a bar is missed)

bench-engine: $(BENCH) ## Measure the embedded engine beside its peers (CHECK=1 as above)
	@$(BIN)/python -m benchmarks.engine $(if $(CHECK),--check) $(ARGS)

bench-http: $(BENCH) ## Measure the service and the client beside their peers (CHECK=1 as above)
	@$(BIN)/python -m benchmarks.http $(if $(CHECK),--check) $(ARGS)

bench-fanout: $(BENCH) ## Measure callbacks beside a bare HTTP client (CHECK=1 as above)
	@$(BIN)/python -m benchmarks.fanout $(if $(CHECK),--check) $(ARGS)

bench-scale: $(BENCH) ## Measure the Redis backend beside Redis itself (CHECK=1 as above)
	@$(BIN)/python -m benchmarks.scale $(if $(CHECK),--check) $(ARGS)

bench-spark: $(BENCH) ## Measure the Spark source and sink beside Spark's own (CHECK=1 as above)
	@$(BIN)/python -m benchmarks.spark $(if $(CHECK),--check) $(ARGS)

collection: $(DEV) ## Make the request collection (Postman) anew from the OpenAPI document
	@$(BIN)/python -m penstock.http.openapi.collection > docs/penstock.postman_collection.json

docs: $(DEV) ## Build the documentation into site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "The documentation is in site/index.html"

clean: ## Remove .venv, caches and built files; the data directory stays
	rm -rf .venv site dist benchmarks/results
	rm -rf .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

.venv/pyvenv.cfg:
	@command -v $(PYTHON) >/dev/null || { \
	  echo "Penstock needs Python 3.11 or newer, and there is no '$(PYTHON)' here." >&2; \
	  echo "On Debian or Ubuntu: apt-get install python3 python3-venv" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Penstock needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) -V 2>&1)." >&2; \
	  echo "Install a newer one (on Debian or Ubuntu: apt-get install python3.12-venv)" >&2; \
	  echo "and name it: make PYTHON=python3.12 install" >&2; \
	  exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "'$(PYTHON)' cannot make virtual environments: it lacks venv or ensurepip." >&2; \
	  echo "On Debian or Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@echo "Making .venv with $$($(PYTHON) -V)"
	@$(PYTHON) -m venv .venv || { rm -rf .venv; exit 1; }

$(RUNTIME): pyproject.toml | .venv/pyvenv.cfg
	@echo "Installing Penstock into .venv"
	@$(PIP) --editable .
	@touch $@

$(DEV): pyproject.toml | .venv/pyvenv.cfg
	@echo "Installing Penstock and its development tools into .venv"
	@$(PIP) --editable '.[dev]'
	@touch $(RUNTIME) $@

$(BENCH): pyproject.toml | .venv/pyvenv.cfg
	@echo "Installing Penstock and the queues it is measured against into .venv"
	@$(PIP) --editable '.[bench]'
	@touch $(RUNTIME) $@
