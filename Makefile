PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
DEMO := .venv/.demo
STAMP := .venv/.stamp
SITE := NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs
PEERS := .venv-peers
# exact versions, for Python 3.11; `make test CONSTRAINTS=` takes the newest that the ranges allow
CONSTRAINTS ?= -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo test lint docs coverage smoke bench bench-peers clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# what the demo needs and no more; the developers' extras come with the first `make test`
$(DEMO): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install $(CONSTRAINTS) -e ".[report]"
	touch $@

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install $(CONSTRAINTS) -e ".[dev]"
	touch $@ $(DEMO)

demo: $(DEMO)  ## train on TFBind8 under 25 % slip, print the best designs and write a page about the run
	@echo "Training a sampler of DNA 8-mers that bind SIX6, where one letter in four is redrawn at random ..."
	$(BIN)/stochflow train tfbind8 --noise 0.25 --trajectories 8000 --out runs/demo --overwrite
	@echo
	@echo "The ten best of 10,000 draws: what came, what was intended, and the measured score (at most 1):"
	@$(BIN)/stochflow sample runs/demo --best 10 | cut -d, -f1-3
	@echo
	@echo "A page about the run, to open in a browser:"
	@$(BIN)/stochflow report runs/demo --out "$(CURDIR)/runs/demo/report.html"

test: lint docs  ## lint, type check, build the documentation and run all tests
	$(BIN)/python -m pytest -n 2 --dist worksteal

lint: $(STAMP)  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(STAMP)  ## build the documentation into build/site, strictly and without network
	$(SITE) build --quiet
	@echo "Open $(CURDIR)/build/site/index.html"

coverage: $(STAMP)  ## run all tests and fail when they reach less than 90 % of the lines of src/
	$(BIN)/python -m pytest -n 2 --dist worksteal --cov=stochflow --cov-fail-under=90

smoke: $(STAMP)  ## build wheel and sdist, install each with its dependencies in a clean environment and try it
	rm -rf dist build/smoke
	$(BIN)/python -c "from setuptools.build_meta import build_sdist, build_wheel; build_sdist('dist'); build_wheel('dist')"
	for package in dist/*.tar.gz dist/*.whl; do \
	  rm -rf build/smoke && $(PYTHON) -m venv build/smoke/env && mkdir build/smoke/work && \
	  build/smoke/env/bin/python -m pip install $(CONSTRAINTS) $$package && \
	  (cd build/smoke/work && ../env/bin/python ../../../tests/smoke.py) || exit 1; \
	done

bench: $(STAMP)  ## run the quick benchmark
	$(BIN)/python -m benchmarks.quick

# gfnx reads its table from its source distribution, so that is kept beside it
$(PEERS)/.stamp: benchmarks/peers/requirements.txt
	rm -rf $(PEERS)
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install -r $<
	$(PEERS)/bin/python -m pip download --no-deps --no-binary gfnx -d $(PEERS)/sources $$(grep '^gfnx==' $<)
	tar -xzf $(PEERS)/sources/gfnx-*.tar.gz -C $(PEERS)/sources
	touch $@

bench-peers: $(STAMP) $(PEERS)/.stamp  ## measure against gfnx and torchgfn; PARTS="--part steps" for a part
	$(BIN)/python -m benchmarks.peers $(PARTS)

clean:  ## remove the environment, caches and build products; runs/ stays
	rm -rf .venv $(PEERS) build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage htmlcov
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
