# Every target creates what it needs: on a fresh machine `make demo` and `make test` are the only commands to know.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-builtin-rules
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# One process more than cores: tests of pages, servers and Spark spend part of their time waiting for other processes.
CORES  ?= $(shell nproc 2>/dev/null || echo 2)
JOBS   ?= $(shell echo $$(($(CORES) + 1)))
# Extra arguments for pytest, e.g. make test PYTEST_ARGS="-k margins"
PYTEST_ARGS ?=

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1
# Some images set this. Without stored bytecode every process compiles again what it imports.
unexport PYTHONDONTWRITEBYTECODE


# --- The environment -------------------------------------------------------------------------------------------------
# The stamp is newer than its inputs, so a second run costs nothing.

INSTALLED := $(VENV)/.installed

# Missing, or its interpreter has been removed.
$(BIN)/python:
	tools/make-venv "$(PYTHON)" "$(VENV)"

# Wheels only: building a source package would fetch build tools that no lock names.
# The package itself is built with the locked hatchling for the same reason.
$(INSTALLED): requirements/dev.txt pyproject.toml $(BIN)/python
	tools/make-venv "$(PYTHON)" "$(VENV)"
	$(BIN)/python -m pip install --quiet --require-hashes --only-binary :all: -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

.PHONY: venv
venv: $(INSTALLED)  ## create or refresh .venv from the locked requirements

# Whatever a target needs beyond Python packages has its own stamp, made by a script in tools/.

BROWSER := $(VENV)/.browser

$(BROWSER): $(INSTALLED) tools/install-browser
	tools/install-browser
	touch $@

POSTGRES := $(VENV)/.postgres

$(POSTGRES): $(INSTALLED) tools/install-postgres
	tools/install-postgres
	touch $@

# PySpark is distributed as source only: it is built with locked tools; everything else comes as wheels.
SPARK := $(VENV)/.spark

$(SPARK): $(INSTALLED) requirements/spark-build.txt requirements/spark.txt
	$(BIN)/python -m pip install --quiet --require-hashes --only-binary :all: -r requirements/spark-build.txt
	$(BIN)/python -m pip install --quiet --require-hashes --only-binary :all: --no-binary pyspark --no-build-isolation \
		-r requirements/spark.txt
	touch $@


# --- Use -------------------------------------------------------------------------------------------------------------

.PHONY: demo
demo: $(INSTALLED)  ## go from a survey file to a release, in demo-output/
	rm -rf demo-output
	$(BIN)/safeswap demo --output demo-output

.PHONY: test
test: $(INSTALLED) $(BROWSER) $(POSTGRES) $(SPARK)  ## run all tests and the examples in docstrings
	$(BIN)/pytest -n $(JOBS) --dist loadscope $(PYTEST_ARGS)

.PHONY: quick
quick: $(INSTALLED)  ## run unit and conformance tests without the slow ones, in about a minute
	$(BIN)/pytest -n $(CORES) --dist loadscope -m "not slow" --hypothesis-profile=quick -p no:schemathesis \
		tests/unit tests/conformance $(PYTEST_ARGS)

.PHONY: shake
shake: $(INSTALLED) $(BROWSER)  ## run the tests of service and workbench with other keys and late answers, three times
	for run in 1 2 3; do SAFESWAP_SHAKE=$$RANDOM$$run $(BIN)/pytest -n $(JOBS) --dist loadscope \
		tests/workbench tests/service $(PYTEST_ARGS) || exit 1; done

.PHONY: check
check: lint types contracts docs test  ## run everything that must pass before a change goes in

.PHONY: bench
bench: $(INSTALLED) $(BROWSER) $(SPARK)  ## run the benchmarks and print one table of figures and targets
	$(BIN)/python bench/run.py $(BENCH_ARGS)


# --- The parts of check ----------------------------------------------------------------------------------------------

.PHONY: lint
lint: $(INSTALLED)  ## check rules and layout (ruff)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

.PHONY: types
types: $(INSTALLED)  ## check types (mypy, strict)
	$(BIN)/mypy

.PHONY: contracts
contracts: $(INSTALLED)  ## check that imports point downwards only
	$(BIN)/lint-imports

.PHONY: docs
docs: $(INSTALLED)  ## build the documentation in docs/_build/html; warnings are errors
	$(BIN)/sphinx-build --fail-on-warning --keep-going --fresh-env --quiet -b html docs docs/_build/html


# --- Maintenance -----------------------------------------------------------------------------------------------------

.PHONY: format
format: $(INSTALLED)  ## format the code and apply automatic fixes (ruff)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The locks name packages, versions and hashes, never an index: that is a setting of the machine.
# They are resolved for the oldest supported Python (Debian 12 has 3.11.2): what runs there runs on later versions too.
# The hashes cover every wheel of a version, so the locks are valid on any machine.
LOCK := $(BIN)/uv pip compile --quiet --upgrade --generate-hashes --python-version 3.11 \
	--custom-compile-command "make lock"
COMPILE := $(LOCK) pyproject.toml

.PHONY: lock
lock: $(INSTALLED)  ## resolve pyproject.toml into requirements/ again
	$(COMPILE) --output-file requirements/runtime.txt
	$(COMPILE) --output-file requirements/dev.txt --extra dev --constraints requirements/runtime.txt
	$(COMPILE) --output-file requirements/service.txt --extra service --constraints requirements/dev.txt
	for group in spark-build spark; do \
		$(LOCK) --group pyproject.toml:$$group --output-file requirements/$$group.txt --constraints requirements/dev.txt; \
	done

.PHONY: clean
clean:  ## remove everything that make created
	rm -rf $(VENV) build dist docs/_build docs/reference/generated demo-output \
		.pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -path ./.git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: help
help:  ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
