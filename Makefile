# Every target sets itself up: .venv is made on first use and renewed only when pyproject.toml changes.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
# Bytecode is kept, whatever the environment says: tests start dozens of processes that import the same modules.
export PYTHONDONTWRITEBYTECODE :=
# Two processes: most of the time goes into compiling, which uses one core. tests/conftest.py says which files stay
# together, and in which order they come: the longest first.
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

.PHONY: demo test thorough check lint format numerics stress faults fuzz mutants bench bench-quick docs clean

demo: $(STAMP)
	$(BIN)/smoothfbo regression --preset demo --out out/demo

test: $(STAMP)
	$(PYTEST) -m "not thorough"

# An answer within a minute: format, lint, types, and the tests that compile little.
check: lint
	$(PYTEST) -q -m quick

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

# Further variants of what `make test` covers already: more estimators, methods and sizes, and shapes and types checked
# at run time in all of the code.
thorough: $(STAMP)
	SMOOTHFBO_TESTS_CHECKED=all $(PYTEST) -m thorough

# The numerical tests with the compiler's optimisations on, as users have them (`make test` leaves them out: most of the
# time goes into compiling).
numerics: $(STAMP)
	SMOOTHFBO_TESTS_OPTIMISED=1 $(PYTEST) tests/library tests/testbeds

.venv/.dev: $(STAMP)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Twenty runs of a vmapped program of every estimator, each in a fresh process under a time limit.
stress: $(STAMP)
	$(BIN)/python tests/stress.py

# Two thousand broken tables for `smoothfbo stream`: each gives results or one sentence.
fuzz: $(STAMP)
	$(BIN)/python tests/fuzz_stream.py

# Thirty runs on a Ray cluster of three nodes, in each of which a worker, a node or the driver is killed.
faults: .venv/.ray
	$(BIN)/python tests/faults.py

.venv/.ray: $(STAMP)
	$(BIN)/python -m pip install --quiet --editable '.[ray]'
	@touch $@

# Breaks the library on purpose in more than 500 places and shows that a test notices each time (more than an hour).
mutants: $(STAMP)
	$(BIN)/python tests/mutants.py

# Ratios against other libraries and against simpler ways, each measured in one run (docs/benchmarks.md says how long it took).
bench: .venv/.bench
	$(BIN)/python -m benchmarks

bench-quick: .venv/.bench
	$(BIN)/python -m benchmarks --quick

.venv/.bench: $(STAMP)
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	@touch $@

# The site, into site/: code of a page that does not run, a broken link, a page that is not in the menu or an undocumented
# public name fails it.
docs: .venv/.docs
	$(PYTEST) -q tests/test_documents.py -k "code_of_a_page or blocks"
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "The site is in site/index.html."

.venv/.docs: $(STAMP)
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	@touch $@

clean:
	rm -rf .venv out build dist site .pytest_cache .ruff_cache .hypothesis

# What the tests need and no more. Not compiled in advance: most modules of the packages are never imported.
$(STAMP): pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --editable '.[test]'
	@touch $@
