# Every target first creates the virtual environment that it needs from the lock file, if it does not
# exist: .venv, or for the linters .venv-lint.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
LINT := .venv-lint
LINT_READY := $(LINT)/.ready

.DEFAULT_GOAL := help
.PHONY: help run test test-slow lint format docs bench soak lock

help:
	@echo "make run       train a small network on real handwritten digits and show the result"
	@echo "make test      run the quick tests; five minutes"
	@echo "make test-slow run all other tests; about 50 minutes; SAMPLE=4 runs every fourth of them"
	@echo "make lint      run ruff and mypy"
	@echo "make format    format the code with ruff"
	@echo "make docs      build the documentation site into site/; half a minute"
	@echo "make bench     measure speed against a bare loop; BENCHMARKS=short only shows that each benchmark runs"
	@echo "make soak      run one of the long suites, of which the tests are a sample: SUITE=kills, sweeps, faults, long,"
	@echo "               clusters, portable, experiments or properties; the Makefile says when to run each"
	@echo "make lock      update the three lock files (requires uv and Python 3.11)"

CHECK_PYTHON = $(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 10) <= v <= (3, 13) else f"requires Python 3.10 to 3.13, but {sys.executable} is {v[0]}.{v[1]}; try: make PYTHON=python3.11 $(MAKECMDGOALS)")'

$(READY): requirements.lock pyproject.toml
	@$(CHECK_PYTHON)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing the locked packages into $(VENV); 2 to 5 minutes the first time"
	$(BIN)/python -m pip install --disable-pip-version-check --no-deps --require-hashes --progress-bar=off -r requirements.lock
	$(BIN)/python -m pip install --disable-pip-version-check --no-deps --no-build-isolation -q -e .
	@touch $@

# The linters, and the packages whose types mypy reads. It skips those that have none, such as
# TensorFlow (see pyproject.toml), so that a clean clone is checked in a minute.
LINT_PACKAGES := ast-serialize librt mypy mypy-extensions numpy optuna pathspec pillow rich ruff \
  sacrebleu sentencepiece tomli types-pyyaml typing-extensions

$(LINT_READY): requirements.lock pyproject.toml Makefile
	@$(CHECK_PYTHON)
	@test -x $(LINT)/bin/python || $(PYTHON) -m venv $(LINT)
	awk -v names=' $(LINT_PACKAGES) ' '/^[^ ]/ {split($$1, name, "=="); keep = index(names, " " name[1] " ")} keep' \
	  requirements.lock > $(LINT)/requirements.lock
	$(LINT)/bin/python -m pip install --disable-pip-version-check --no-deps --require-hashes -q -r $(LINT)/requirements.lock
	@touch $@

# `make test WORKERS=4` runs four files at a time; each process takes 2 to 4 GB of memory, and up to
# 6 GB in the slow tests. Tests start hundreds of processes, which would compile all modules again if
# PYTHONDONTWRITEBYTECODE were set.
WORKERS ?= 2
PYTEST := env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest --tb=short

run: $(READY)
	$(BIN)/runner --experiment=digits

test: $(READY)
	$(PYTEST) -n $(WORKERS) --dist=loadfile --quick

test-slow: $(READY)
	$(PYTEST) -n $(WORKERS) --dist=loadfile $(if $(SAMPLE),--slow-sample=$(SAMPLE),--slow)

lint: $(LINT_READY)
	$(LINT)/bin/ruff check .
	$(LINT)/bin/ruff format --check .
	$(LINT)/bin/mypy

format: $(LINT_READY)
	$(LINT)/bin/ruff check --fix --exit-zero --quiet .
	$(LINT)/bin/ruff format .

docs: $(READY)
	$(BIN)/python -m pip install --disable-pip-version-check --no-deps --require-hashes --progress-bar=off -q -r requirements-docs.lock
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "the documentation is in site/index.html"

bench: $(READY)
	$(BIN)/python -m benchmarks

# The long suites: when to run each, and the time on two cores. POINTS=50 tries 50 of each kind of
# fault, evenly spread. EXAMPLES=100 tries a hundred times as many files and configs as the tests,
# others each time.
POINTS := all
EXAMPLES := 10
# After a change to saving or the loop: kills runs at any moment, compares weights; an hour.
SUITE_kills := tests/kills --kills=20
# After a change to sweep/: kills sweeps at random, with one to three processes, compares results; hours.
SUITE_sweeps := tests/sweep/kills --sweep-kills=10
# Before a release, or after a change to what is written: each writing system call fails once; two
# hours, less with POINTS=10.
SUITE_faults := tests/faults --points=$(POINTS) --figures=benchmarks/results/faults.json
# After a change to the loop, callbacks or reports: 100,000 steps twice, 1,000 restarts; an hour.
SUITE_long := tests/soak --soak-steps=100000 --restarts=1000
# After a change to distribute/ or launch/: each strategy, mode and lost worker; half an hour.
SUITE_clusters := --clusters -m matrix
# After a change to determinism/portable*.py: networks on emulated processors; needs qemu-x86_64; an
# hour or more.
SUITE_portable := tests/determinism/test_portable_emulated.py --emulated
# After a change to networks or experiments: each experiment file, run twice.
SUITE_experiments := --wide -m wide
# After a change to a parser or to a reader of files: tries more changed files and configs; ten
# minutes, longer with EXAMPLES=100.
SUITE_properties := tests/properties
soak: $(READY)
	$(if $(SUITE_$(SUITE)),,$(error SUITE is '$(SUITE)', allowed: $(patsubst SUITE_%,%,$(filter SUITE_%,$(.VARIABLES)))))
	ORBIT_EXAMPLES=$(EXAMPLES) $(PYTEST) -s $(SUITE_$(SUITE))

LOCK := --universal --python-version 3.10 --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --no-annotate

# The locks of the site and of CUDA agree with requirements.lock; that of CUDA has only what it adds.
lock:
	uv pip compile pyproject.toml --extra dev $(LOCK) -o requirements.lock
	python3 -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']['docs'], sep='\n')" \
	  | uv pip compile - -c requirements.lock $(LOCK) -o requirements-docs.lock
	uv pip compile pyproject.toml --extra cuda -c requirements.lock $(LOCK) -o requirements-cuda.lock
	awk 'NR == FNR {locked[$$1]; next} /^[^ ]/ {keep = !($$1 in locked)} keep' \
	  requirements.lock requirements-cuda.lock > requirements-cuda.lock.new
	mv requirements-cuda.lock.new requirements-cuda.lock
