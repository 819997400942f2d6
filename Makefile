# One virtual environment, .venv, shared by all targets. Each target installs the extra
# it needs the first time, and again only when pyproject.toml has changed.
#
#   make demo FASHION_MNIST=/path/to/the/four/idx/files
#   make test ARGS="-k shuffle"
#   make bench ARGS=jobs            (also growth, busy, ray, statistics, simulation; README.md in benchmarks/ has more)
#   make test PYTHON=python3.13 VENV=.venv-3.13
#   make test-all PYTHONS="3.12 3.13"

PYTHON ?= python3
ARGS ?=
FASHION_MNIST ?=

# One more than there are cores, since many a test waits for processes of its own; 4 are enough.
PROCESSES ?= $(shell n=$$(nproc 2>/dev/null || echo 2); [ $$n -lt 4 ] && echo $$((n + 1)) || echo 4)

# The Pythons of `test-all`, and how many examples of each property it tries: with the first of
# them. With the others it is the usual number, as arithmetic is the same on each of them.
PYTHONS ?= 3.11 3.12 3.13
EXAMPLES ?= 100
USUAL_EXAMPLES := 20

# How long `fuzz` and `soak` go on, and what repeats a run of them.
MINUTES ?= 5
SEED ?=

VENV ?= .venv
RUN := $(VENV)/bin/python

.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-numpy-1 browser fuzz soak bench check format dist docs clean
.NOTPARALLEL:  # two targets must not install into .venv at the same time
.SECONDARY:  # keep the stamps of what is installed

help:  ## list these targets
	@echo "usage: make TARGET [ARGS=...]"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-8s %s\n", $$1, $$2 }' Makefile

demo: $(VENV)/installed-demo  ## train a classifier, kill it half-way, resume to the identical end
	@$(RUN) examples/train_digits.py $(if $(FASHION_MNIST),--fashion-mnist "$(FASHION_MNIST)") $(ARGS)

# What Python compiles is kept, whatever the environment says: tests start a thousand processes.
test: $(VENV)/installed-test $(VENV)/browser  ## run the test suite, doctests included, but for what takes long
	@PYTHONDONTWRITEBYTECODE= $(RUN) -m pytest -q -n $(PROCESSES) --dist worksteal $(ARGS)

# A Python that is missing does not keep the others from being tested, and fails all the same.
test-all:  ## run all of it on each Python that bushel supports, with many more examples on the first
	@failed=; examples=$(EXAMPLES); for version in $(PYTHONS); do \
	  echo "test-all: Python $$version"; \
	  python=; \
	  for found in python$$version "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/$$version.*/bin/python; do \
	    "$$found" --version >/dev/null 2>&1 && { python=$$found; break; }; done; \
	  [ -n "$$python" ] || { \
	    echo "test-all: there is no python$$version here, neither in the PATH nor of pyenv's" >&2; \
	    failed="$$failed $$version (missing)"; continue; }; \
	  BUSHEL_EXAMPLES=$$examples $(MAKE) --no-print-directory test \
	    PYTHON=$$python VENV=.venv-$$version || failed="$$failed $$version"; \
	  examples=$(USUAL_EXAMPLES); \
	done; \
	[ -z "$$failed" ] || { echo "test-all: failed on$$failed" >&2; exit 1; }

# The oldest numpy that bushel takes, with the tests that need little else. Doctests show numbers as
# numpy 2 writes them.
test-numpy-1:  ## run the tests of orders, batches and properties with numpy 1.26
	@$(PYTHON) -m venv .venv-numpy-1
	@.venv-numpy-1/bin/python -m pip install -qq --disable-pip-version-check -e . "numpy<2" \
	  pytest pytest-xdist hypothesis attrs "fsspec>=2025.3" pillow
	@.venv-numpy-1/bin/python -m pytest -q -n $(PROCESSES) tests/order tests/batch tests/core tests/property $(ARGS)

# Whatever is called test_fuzz_*, with many more examples, until the minutes are over. The seed
# that is told repeats a run: make fuzz SEED=...
fuzz: $(VENV)/installed-test  ## try damaged states, files and values, for MINUTES (5 unless told)
	@$(RUN) -m tests.fuzz --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(ARGS)

soak: $(VENV)/installed-test  ## kill, stop and resume random pipelines with workers, for MINUTES
	@$(RUN) -m tests.soak --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(ARGS)

browser:  ## install Chromium, in which tests open pages; takes a minute, and asks for root
	@apt-get install -qq -y --no-install-recommends chromium >/dev/null || \
	  { apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium >/dev/null; }

bench: $(VENV)/installed-bench  ## measure against code written by hand, Grain and torch
	@$(RUN) -m compileall -q src/bushel  # a worker that has to compile starts late
	@$(RUN) -m benchmarks $(ARGS)

check: $(VENV)/installed-dev  ## lint, formatting, types
	@$(RUN) -m ruff check
	@$(RUN) -m ruff format --check
	@$(RUN) -m mypy

format: $(VENV)/installed-dev  ## mend what ruff can mend by itself
	@$(RUN) -m ruff check --fix
	@$(RUN) -m ruff format

dist: $(VENV)/installed-dist  ## make the wheel and the sdist in dist/, and try both in empty environments
	@rm -rf dist
	@$(RUN) -m build --outdir dist . >/dev/null
	@$(RUN) -m tools.check_dist

docs: $(VENV)/installed-docs  ## build the documentation into site/
	@NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict --quiet
	@echo "docs: open site/index.html, or with its search: $(RUN) -m http.server --directory site"

clean:  ## remove everything that make has made, .venv included
	rm -rf $(VENV) $(addprefix .venv-,$(PYTHONS)) .venv-numpy-1 site build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

$(VENV)/created:
	@command -v $(PYTHON) >/dev/null || { \
	  echo "make: there is no '$(PYTHON)' here. Name a Python 3.11 or newer: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "make: bushel needs Python 3.11 or newer, and '$(PYTHON)' is `$(PYTHON) --version 2>&1`." >&2; \
	  echo "      Name another one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@rm -rf $(VENV)
	@echo "creating $(VENV) with `$(PYTHON) --version`"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

# Tried once, and where the system lets us; without it, tests of pages are skipped.
$(VENV)/browser: $(VENV)/created
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || { \
	  [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && echo "installing Chromium; takes a minute" && \
	  $(MAKE) --no-print-directory browser; } || \
	  echo "make: there is no Chromium here; tests that open pages are skipped (\"make browser\" installs it)"
	@touch $@

$(VENV)/installed-%: pyproject.toml $(VENV)/created
	@echo "installing bushel[$*] into $(VENV); the first time takes a minute"
	@$(RUN) -m pip install -qq --disable-pip-version-check -e '.[$*]'
	@touch $@
