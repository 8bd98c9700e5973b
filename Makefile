PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
STAMP := .venv/.stamp

.DEFAULT_GOAL := help
.PHONY: help demo test lint bench clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "%-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -c constraints.txt -e ".[dev]"
	touch $@

demo: $(STAMP)  ## train on TFBind8 under 25 % slip and write runs/demo
	$(BIN)/stochflow train tfbind8 --method sgfn-kl --noise 0.25 --trajectories 32000 --out runs/demo --overwrite

test: lint  ## lint, type check and run all tests
	$(BIN)/python -m pytest -n 2

lint: $(STAMP)  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(STAMP)  ## run the quick benchmark
	$(BIN)/python -m benchmarks.quick

clean:  ## remove the environment, caches and build products; runs/ stays
	rm -rf .venv build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage htmlcov
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
