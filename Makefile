# Everything a person or CI does with this repository. A fresh machine needs Python 3.11 or newer
# and make, nothing else: `make demo` and `make test` set up the rest in .venv.
# SUIMON_PYTHON chooses the Python; SUIMON_DATABASE_URL a PostgreSQL server of your own.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

SUIMON_PYTHON ?= python3
BIN := .venv/bin
# Many tests wait for processes and clocks: one more than a small machine has cores.
JOBS ?= 3
PYTEST := $(BIN)/python -m pytest

.PHONY: help setup format lint types imports tidy check docs schema test test-all test-long test-oldest test-fast sabotage bench demo dev clean

# List the targets with what they do.
help:
	@awk '/^# /{text=substr($$0,3)} /^[a-z-]+:/{split($$0,a,":"); if (text) printf "  %-12s %s\n", a[1], text} {if ($$0 !~ /^# /) text=""}' $(firstword $(MAKEFILE_LIST))

# Make .venv with everything in it, exactly as uv.lock says.
setup: .venv/installed

.venv/installed: pyproject.toml uv.lock
	@$(SUIMON_PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Suimon needs Python 3.11 or newer: set SUIMON_PYTHON" >&2; exit 1; }
	@test -x $(BIN)/python || $(SUIMON_PYTHON) -m venv .venv
	@test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet --disable-pip-version-check 'uv>=0.9,<1'
	@$(BIN)/uv sync --quiet --locked --inexact --all-groups --all-extras --python $(BIN)/python
	@touch $@

# Put the code into the one form it has.
format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Style and form, changing nothing.
lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# Strict types.
types: setup
	$(BIN)/mypy

# The import contracts of pyproject.toml.
imports: setup
	$(BIN)/lint-imports

# The house rules that no other tool knows.
tidy: setup
	$(PYTEST) -q tests/tidy

# Everything that needs no database: style, types, imports, house rules.
check: lint types imports tidy

# Write the documents that are made from the source.
docs: setup
	$(BIN)/python docs/generate.py

# Before the first release the initial migration is schema.sql itself.
schema:
	cp suimon/db/schema.sql suimon/db/migrations/0001_initial.sql

# Checks, and all tests but the long ones.
test: check test-all

# All tests but the long ones, without the checks.
test-all: setup
	$(PYTEST) -n $(JOBS) --dist loadgroup -m 'not long'

# The portable ones again on the oldest PostgreSQL here, then the long ones (more than half a minute each).
test-long: test-oldest
	$(PYTEST) -n $(JOBS) --dist loadgroup -m long

# The portable tests on the oldest PostgreSQL that is installed on this system.
test-oldest: setup
	@oldest=$$(PYTHONPATH=tests $(BIN)/python -m support.oldest); \
	if [ -n "$${SUIMON_DATABASE_URL:-}" ]; then echo "SUIMON_DATABASE_URL is set: all tests run on that server only"; \
	elif [ -z "$$oldest" ]; then echo "no system PostgreSQL of version 15 or newer found: the second pass is left out"; \
	else echo "second pass on $$oldest"; SUIMON_TEST_PG_BIN="$$oldest" $(PYTEST) -q -n $(JOBS) --dist loadgroup -m 'portable and not slow'; fi

# The quick tests: what needs no process of ours, and the life of a run on a real database. (House rules: make check.)
FAST := tests/core tests/read tests/run $(wildcard tests/test_[bd-l]*.py tests/test_p*.py)
test-fast: setup
	$(PYTEST) -q -n $(JOBS) --dist loadgroup -m 'not slow and not acceptance' $(FAST)

# Break the engine in one line, twenty times over: each must turn a test red. ONLY='a word' for some.
sabotage: setup
	$(BIN)/python tests/sabotage/run.py $(ONLY)

# Measure, on this machine, what docs and notes quote.
bench: setup
	$(BIN)/python -m bench

# The airports example to its end on an embedded PostgreSQL, and where to look next.
demo: setup
	@$(BIN)/suimon demo

# An embedded PostgreSQL and a worker that reloads the examples on change.
dev: setup
	@$(BIN)/suimon dev examples

# Remove what the targets above made, but not your data in .suimon.
clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
