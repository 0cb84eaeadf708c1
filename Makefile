# Every target first creates the virtual environment .venv from the lock file, if it does not exist.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help run test test-slow test-slow-sample test-all newest lint format docs kills faults sweeps soak clusters portable wide fuzz mutate matrix official-matrix official-sample bench lock wheel-check clean

help:
	@echo "make run      train a small network on real handwritten digits and show the result"
	@echo "make test     run the quick tests; eight minutes"
	@echo "make test-all run all tests; over an hour"
	@echo "make newest   run all tests with the newest packages, with warnings as errors; two hours"
	@echo "make lint     run ruff and mypy"
	@echo "make format   format the code with ruff"
	@echo "make docs     build the documentation site into site/; half a minute"
	@echo "make kills    kill ten runs twenty times each and compare their weights; an hour"
	@echo "make sweeps   kill the processes of sweeps at random, ten times, and compare the results; hours"
	@echo "make faults   kill a run at each system call that writes, make each fail, and compare; two hours"
	@echo "make soak     train for 100,000 steps twice, restart a run 1,000 times, watch its memory; an hour"
	@echo "make clusters test every strategy and mode, and every way to lose a worker; half an hour"
	@echo "make fuzz     run parsers and readers on mutated files; problems are written to runs/fuzz; ten minutes"
	@echo "make mutate   break the source in 100 places, one at a time, and run the tests near it; hours; resumes"
	@echo "make portable train the small networks on emulated processors and compare the weights; an hour"
	@echo "make matrix   train every experiment with every fragment of the runtime; hours; resumes"
	@echo "make official-matrix  run all Model Garden experiments and write their table; hours; resumes"
	@echo "make official-sample  run four of them; a minute; fails if one of them fails"
	@echo "make wide     run every experiment file twice; \`make test\` runs only a sample"
	@echo "make bench    measure speed against a bare loop, and the cost of exactness, saving and resuming"
	@echo "make lock     update the three lock files (requires uv and Python 3.11)"
	@echo "make wheel-check  build the sdist and the wheel, and run the wheel in a new environment; five minutes"
	@echo "make clean    remove .venv, runs and caches"

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 10) <= v <= (3, 13) else f"requires Python 3.10 to 3.13, but {sys.executable} is {v[0]}.{v[1]}; try: make PYTHON=python3.11 $(MAKECMDGOALS)")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing the locked packages into $(VENV); 2 to 5 minutes the first time"
	$(BIN)/python -m pip install --disable-pip-version-check --no-deps --require-hashes --progress-bar=off -r requirements.lock
	$(BIN)/python -m pip install --disable-pip-version-check --no-deps --no-build-isolation -q -e .
	@touch $@

# `make test WORKERS=4` runs four files at a time; each process takes 2 to 4 GB of memory, and up to
# 6 GB in the slow tests. Tests start hundreds of processes, which would compile all modules again if
# PYTHONDONTWRITEBYTECODE were set.
WORKERS ?= 2
PYTEST := env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -n $(WORKERS) --dist=loadfile --tb=short

run: $(READY)
	$(BIN)/runner --experiment=digits

test: $(READY)
	$(PYTEST) --quick

test-slow: $(READY)
	$(PYTEST) --slow

test-slow-sample: $(READY)
	$(PYTEST) --slow-sample

test-all: test test-slow

# The newest packages that pyproject.toml allows. A warning about how this code uses them is an error.
NEWEST := build/newest
newest:
	$(PYTHON) -m venv $(NEWEST)
	$(NEWEST)/bin/python -m pip install --disable-pip-version-check --upgrade --upgrade-strategy=eager -q -e '.[dev]'
	$(NEWEST)/bin/python -m pip list --disable-pip-version-check
	$(NEWEST)/bin/python -m pytest -n $(WORKERS) --dist=loadfile --tb=short -o 'filterwarnings=error:::(orbit_runner|tests|tools)\b'

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY)
	$(BIN)/python -m pip install --disable-pip-version-check --no-deps --require-hashes --progress-bar=off -q -r requirements-docs.lock
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "the documentation is in site/index.html"

kills: $(READY)
	$(BIN)/python -m pytest tests/kills --kills=20 -s

sweeps: $(READY)
	$(BIN)/python -m pytest tests/sweep/kills --sweep-kills=10 -s

# POINTS=50 tries 50 of each kind of fault, evenly spread.
POINTS := all
faults: $(READY)
	$(BIN)/python -m pytest tests/faults --points=$(POINTS) --figures=benchmarks/results/faults.json -s

soak: $(READY)
	$(BIN)/python -m pytest tests/soak --soak-steps=100000 --restarts=1000 -s

wide: $(READY)
	$(BIN)/python -m pytest --wide -m wide -s

# Cases of each target, as in `make fuzz CASES=100000`; another SEED gives other cases.
CASES ?= 4000
SEED ?= 0
fuzz: $(READY)
	$(BIN)/python -m tools.fuzz --cases=$(CASES) --seed=$(SEED)
	ORBIT_EXAMPLES=10 $(BIN)/python -m pytest tests/properties

# Another MUTATIONS_SEED draws other places.
MUTATIONS ?= 100
MUTATIONS_SEED ?= 0
mutate: $(READY)
	$(BIN)/python -m tools.mutate --count=$(MUTATIONS) --seed=$(MUTATIONS_SEED)

portable: $(READY)
	$(BIN)/python -m pytest tests/determinism/test_portable_emulated.py --emulated -s

clusters: $(READY)
	$(BIN)/python -m pytest --clusters -m matrix -s

matrix: $(READY)
	-$(BIN)/python -m tools.runtime_matrix
	$(BIN)/python -m tools.runtime_matrix --page

official-matrix: $(READY)
	$(BIN)/python -m tools.model_garden_matrix
	$(BIN)/python -m tools.model_garden_matrix --table

official-sample: $(READY)
	$(BIN)/python -m tools.model_garden_matrix --sample --anew --results runs/model_garden_matrix/sample.jsonl

bench: $(READY)
	$(BIN)/python -m benchmarks

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

# EXTRAS=--extras installs and imports the extras, too.
EXTRAS :=
wheel-check: $(READY)
	$(BIN)/python -m tools.wheel_check $(EXTRAS)

clean:
	rm -rf $(VENV) runs build dist site .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
