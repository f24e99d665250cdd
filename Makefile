# Two commands do all the set-up:  make demo   and   make test.  Only Python 3.11+ and make are needed.
#
#   PYTHON=python3.12      which interpreter makes the environment
#   VENV=.venv             where it goes
#   PIP_ARGS=...           passed to pip install; on a machine with no GPU the smaller CPU build of torch is
#                          PIP_ARGS="--extra-index-url https://download.pytorch.org/whl/cpu"
#   TESTS=tests            what `make test` runs, e.g. TESTS=tests/app; TESTS='tests -m slow' runs what it leaves out
#   JOBS=2                 test processes

PYTHON ?= python3
VENV ?= .venv
PIP_ARGS ?=
TESTS ?= tests
JOBS ?= 2

BIN := $(VENV)/bin
INSTALL = $(BIN)/python -m pip install -qq --no-compile --disable-pip-version-check -c constraints.txt $(PIP_ARGS)

.DEFAULT_GOAL := help
.PHONY: help demo test lint docs outputs clean

help:  ## say what there is
	@sed -n 's/^\([a-z]*\):.*## /\1: /p' $(MAKEFILE_LIST)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "kernelllm needs Python 3.11 or later, and '$(PYTHON)' is older or missing. Try: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	@echo "Making $(VENV) ..."
	@$(PYTHON) -m venv $(VENV) || \
	  { echo "'$(PYTHON) -m venv' failed; on Debian and Ubuntu: apt install python3-venv" >&2; rm -rf $(VENV); exit 1; }

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing kernelllm into $(VENV) (a minute or two the first time) ..."
	@$(INSTALL) -e .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing kernelllm and its test tools into $(VENV) (a minute or two the first time) ..."
	@$(INSTALL) -e '.[dev]'
	@touch $@ $(VENV)/.installed

demo: $(VENV)/.installed  ## install, then turn examples/hinge_loss.py into a verified Triton kernel
	@$(BIN)/kernelllm optimize examples/hinge_loss.py

test: $(VENV)/.installed-dev  ## install, then the tests; tests/test_structure.py runs ruff, mypy and import-linter
	@$(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(TESTS)

lint: $(VENV)/.installed-dev  ## ruff, mypy (strict) and import-linter alone
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

docs: $(VENV)/.installed  ## write the generated pages of docs/reference
	@$(BIN)/python docs/reference_pages.py

outputs: $(VENV)/.installed-dev  ## run the examples of README and docs, and write what they print now into the pages
	@WRITE_DOCS=1 $(BIN)/python -m pytest -n $(JOBS) tests/app/test_docs_run.py tests/app/test_end_to_end.py

clean:  ## remove the environment and caches
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
