# Every target does its own set-up: a virtual environment in .venv, made once from the lock.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help run test test-slow test-all lint format kills clusters wide official-matrix official-sample bench lock clean

help:
	@echo "make run      train a small network on real handwritten digits, and show the result"
	@echo "make test     the quick tests, four in five; a quarter of an hour"
	@echo "make test-all all tests; an hour"
	@echo "make lint     ruff and mypy"
	@echo "make format   ruff format"
	@echo "make kills    kill seven runs twenty times each, and compare their weights; an hour"
	@echo "make clusters every strategy and mode, every way to lose a worker; half an hour"
	@echo "make official-matrix  every experiment of Model Garden, and the table of them; hours, resumes"
	@echo "make official-sample  four of them, in a minute; fails where one does"
	@echo "make wide     every experiment file, run twice, where \`make test\` takes a sample"
	@echo "make bench    speed against a bare loop, the cost of exactness, pauses for saving, resuming"
	@echo "make lock     requirements.lock anew (needs uv)"
	@echo "make clean    remove .venv, runs and caches"

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 10) <= v <= (3, 12) else f"Python 3.10 to 3.12 is needed, {sys.executable} is {v[0]}.{v[1]}; try: make PYTHON=python3.11 $(MAKECMDGOALS)")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing the locked packages into $(VENV); 2 to 5 minutes the first time"
	$(BIN)/python -m pip install --disable-pip-version-check --no-deps --require-hashes --progress-bar=off -r requirements.lock
	$(BIN)/python -m pip install --disable-pip-version-check --no-deps --no-build-isolation -q -e .
	@touch $@

run: $(READY)
	$(BIN)/runner --experiment=digits

test: $(READY)
	$(BIN)/python -m pytest -n 2 --dist=loadfile --quick

test-slow: $(READY)
	$(BIN)/python -m pytest -n 2 --dist=loadfile --slow

test-all: test test-slow

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

kills: $(READY)
	$(BIN)/python -m pytest tests/kills --kills=20 -s

wide: $(READY)
	$(BIN)/python -m pytest --wide -m wide -s

clusters: $(READY)
	$(BIN)/python -m pytest --clusters -m matrix -s

official-matrix: $(READY)
	$(BIN)/python -m tools.model_garden_matrix
	$(BIN)/python -m tools.model_garden_matrix --table

official-sample: $(READY)
	$(BIN)/python -m tools.model_garden_matrix --sample --anew --results runs/model_garden_matrix/sample.jsonl

bench: $(READY)
	$(BIN)/python -m benchmarks

lock:
	uv pip compile pyproject.toml --extra dev --universal --python-version 3.10 --generate-hashes \
	  --no-emit-index-url --no-emit-find-links --no-header --no-annotate -o requirements.lock

clean:
	rm -rf $(VENV) runs build dist .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
