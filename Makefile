# Everything a developer or a fresh machine needs; `make` alone lists it.
# One .venv, two stamps in it: .runtime (what the demo needs) and .dev (tests, lint, types, docs too).
# pip compiles on one core; --no-compile and compileall use all of them.

PYTHON ?= python3
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install -qq --no-compile -c constraints.txt
COMPILE := $(BIN)/python -m compileall -q -j 0 $(VENV)/lib > /dev/null 2>&1 || true
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-long test-browser test-mutants coverage smoke results bench lint types gallery docs check clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

setup: $(VENV)/.dev  ## create .venv with everything a developer needs

demo: $(VENV)/.runtime  ## install what is needed, then simulate, train, score and plot on the embedded data
	$(BIN)/stonet demo $(ARGS)

test: $(VENV)/.dev  ## run the tests; ARGS="-k kernel" selects some
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal $(ARGS)

test-long: $(VENV)/.dev  ## run the proofs that take minutes
	$(BIN)/python -m pytest -m long $(ARGS)

test-browser: $(VENV)/.dev  ## use the page of `stonet serve` in Chromium (apt-get install chromium)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m browser tests/browser $(ARGS)

coverage: $(VENV)/.dev  ## run the tests and print the share of stonet's lines that they run
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal --cov=stonet --cov-report=term $(ARGS)
test-mutants: $(VENV)/.dev  ## check that errors in the paper's network are found; ARGS="tanh" selects some
	$(BIN)/python -m tests.mutants $(ARGS)

smoke: $(VENV)/.runtime  ## run every experiment in small, from nothing (a minute)
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && \
	$(BIN)/stonet reproduce all --budget smoke --jobs 2 --results "$$folder" $(ARGS)

results: $(VENV)/.runtime  ## compute what results/ lacks (hours), write docs/results.md
	$(BIN)/stonet reproduce all --jobs 2 $(ARGS)
	$(BIN)/stonet reproduce page

bench: $(VENV)/.dev  ## measure against peers (30 min on a quiet machine), write docs/performance.md
	@$(INSTALL) -e '.[bench]'
	$(BIN)/python -m benchmarks all -o docs/performance.json
	$(BIN)/python -m benchmarks.report

lint: $(VENV)/.dev  ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev  ## mypy, strict
	$(BIN)/mypy

gallery: $(VENV)/.dev  ## run the examples in full (half an hour), write docs/gallery and docs/images
	MPLBACKEND=Agg OMP_NUM_THREADS=1 $(BIN)/python docs/gallery.py $(ARGS)

docs: $(VENV)/.dev  ## build docs/_build; a warning is an error
	$(BIN)/sphinx-build -q -W --keep-going docs docs/_build

check: lint types docs test smoke  ## all that must pass before a change is proposed

clean:  ## remove .venv, built docs and caches; runs/ stay
	rm -rf $(VENV) docs/_build docs/_generated build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find stonet tests docs examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# pip is the last file that venv writes: where it is missing, the environment was never finished.
$(BIN)/pip:
	@echo "stonet: creating $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)

# torch goes first and by its exact version: an open range would bring the CUDA build, gigabytes of it.
$(VENV)/.runtime: pyproject.toml constraints.txt | $(BIN)/pip
	@echo "stonet: installing torch (200 MB)"
	@$(INSTALL) torch
	@echo "stonet: installing stonet and what it runs on"
	@$(INSTALL) -e '.[all]'
	@$(COMPILE)
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime
	@echo "stonet: installing the developer's tools"
	@$(INSTALL) -e '.[dev]'
	@$(COMPILE)
	@touch $@
