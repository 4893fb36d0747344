# Every target sets itself up: Python >= 3.10, pip and make are all that is needed.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: help test reproduce lint types check bench easyfsl clean

help:            ## this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 14

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@

test: $(READY)   ## all tests, doctests included
	$(BIN)/python -m pytest

reproduce: $(READY)  ## the paper's tables on the packaged features, into results/
	$(BIN)/likelyshot reproduce

lint: $(READY)   ## ruff: style, imports, safety
	$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: $(READY)  ## mypy, strict
	$(BIN)/mypy

check: lint types test  ## everything that CI runs

bench: $(READY)  ## speed ratios against reference implementations
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.rivals

easyfsl: $(READY)  ## install easyfsl, a second oracle and a rival in speed (its own requirements would pull another torch)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps easyfsl==1.5.0 torchvision==0.16.2
	$(BIN)/python -m pip install --quiet --disable-pip-version-check requests tqdm

clean:           ## remove the environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
