# Every target makes what it needs: on a fresh machine `make demo` and `make test` are the only two commands to know.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-builtin-rules
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
JOBS   ?= 2
# Further arguments for pytest, e.g. make test PYTEST_ARGS="-k margins"
PYTEST_ARGS ?=

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1


# --- The environment -------------------------------------------------------------------------------------------------
# The stamp is newer than what it was made from, so a second run costs nothing.

INSTALLED := $(VENV)/.installed

# Not there yet, or its interpreter has gone since.
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
venv: $(INSTALLED)  ## make or refresh .venv from the locked requirements

# What a target needs beyond Python packages gets its own stamp here, made by a script in tools/.

BROWSER := $(VENV)/.browser

$(BROWSER): $(INSTALLED) tools/install-browser
	tools/install-browser
	touch $@

POSTGRES := $(VENV)/.postgres

$(POSTGRES): $(INSTALLED) tools/install-postgres
	tools/install-postgres
	touch $@

# PySpark comes as source only: it is built with tools that are locked as well, and everything else comes as wheels.
SPARK := $(VENV)/.spark

$(SPARK): $(INSTALLED) requirements/spark-build.txt requirements/spark.txt
	$(BIN)/python -m pip install --quiet --require-hashes --only-binary :all: -r requirements/spark-build.txt
	$(BIN)/python -m pip install --quiet --require-hashes --only-binary :all: --no-binary pyspark --no-build-isolation \
		-r requirements/spark.txt
	touch $@


# --- Using it --------------------------------------------------------------------------------------------------------

.PHONY: demo
demo: $(INSTALLED)  ## from a survey file to a release, written to demo-output/
	rm -rf demo-output
	$(BIN)/safeswap demo --output demo-output

.PHONY: test
test: $(INSTALLED) $(BROWSER) $(POSTGRES) $(SPARK)  ## all tests, and the examples in the docstrings
	$(BIN)/pytest -n $(JOBS) --dist loadscope $(PYTEST_ARGS)

.PHONY: check
check: lint types contracts docs test  ## everything that must hold before a change goes in

.PHONY: bench
bench: $(INSTALLED)  ## the benchmarks, each printed as a ratio
	for benchmark in bench/bench_*.py bench/scale.py; do $(BIN)/python "$$benchmark"; done


# --- The parts of check ----------------------------------------------------------------------------------------------

.PHONY: lint
lint: $(INSTALLED)  ## ruff: rules and layout
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

.PHONY: types
types: $(INSTALLED)  ## mypy, strict
	$(BIN)/mypy

.PHONY: contracts
contracts: $(INSTALLED)  ## imports point downwards only
	$(BIN)/lint-imports

.PHONY: docs
docs: $(INSTALLED)  ## the documentation, docs/_build/html; a warning is an error
	$(BIN)/sphinx-build --fail-on-warning --keep-going --fresh-env --quiet -b html docs docs/_build/html


# --- Keeping house ---------------------------------------------------------------------------------------------------

.PHONY: format
format: $(INSTALLED)  ## let ruff lay out the code and mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The locks name packages, versions and hashes, never where to fetch them: that is the machine's own setting.
# They are resolved with the oldest Python in use (Debian 12 has 3.11.2): what runs there runs on later ones too.
# For the oldest Python that is supported; the hashes are those of every wheel of a version, on any machine.
LOCK := $(BIN)/uv pip compile --quiet --upgrade --generate-hashes --python-version 3.11 \
	--custom-compile-command "make lock"
COMPILE := $(LOCK) pyproject.toml

.PHONY: lock
lock: $(INSTALLED)  ## resolve pyproject.toml anew into requirements/
	$(COMPILE) --output-file requirements/runtime.txt
	$(COMPILE) --output-file requirements/dev.txt --extra dev --constraints requirements/runtime.txt
	$(COMPILE) --output-file requirements/service.txt --extra service --constraints requirements/dev.txt
	for group in spark-build spark; do \
		$(LOCK) --group pyproject.toml:$$group --output-file requirements/$$group.txt --constraints requirements/dev.txt; \
	done

.PHONY: clean
clean:  ## remove everything that make made
	rm -rf $(VENV) build dist docs/_build docs/reference/generated demo-output \
		.pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -path ./.git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: help
help:  ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
