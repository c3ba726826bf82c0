# Every target sets itself up: .venv is made on first use and renewed only when pyproject.toml changes.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: demo test lint format stress mutants bench bench-quick clean

demo: $(STAMP)
	$(BIN)/smoothfbo regression --preset demo --out out/demo

# Two processes: most of the time goes into compiling, which uses one core.
test: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist loadfile

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Twenty runs of a vmapped program of every estimator, each in a fresh process under a time limit.
stress: $(STAMP)
	$(BIN)/python tests/stress.py

# Breaks the library on purpose in some eighty places and shows that a test notices each time (about an hour).
mutants: $(STAMP)
	$(BIN)/python tests/mutants.py

# Ratios against other libraries and against simpler ways, each measured in one run: about 15 minutes and 3.
bench: .venv/.bench
	$(BIN)/python -m benchmarks

bench-quick: .venv/.bench
	$(BIN)/python -m benchmarks --quick

.venv/.bench: $(STAMP)
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	@touch $@

clean:
	rm -rf .venv out build dist .pytest_cache .ruff_cache .hypothesis

$(STAMP): pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@
