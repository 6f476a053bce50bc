# Speculative Tuner. `make` lists what there is. Everything is installed into .venv, nothing else
# on the machine is touched.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
MODEL := .models/SmolLM2-135M-Instruct.Q4_1.gguf
STUDY := studies/quickstart.yaml
PIP := $(BIN)/python -m pip --disable-pip-version-check

SHELL := /bin/sh
.SHELLFLAGS := -eu -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
.PHONY: help quickstart install test lint docs clean

help:
	@echo "make quickstart   tune llama.cpp with a 135 M model on this CPU: at most 8 minutes"
	@echo "make install      the tuner and its tools into .venv: $(BIN)/tuner"
	@echo "make test         lint, types and tests: at most 10 minutes"
	@echo "make docs         the documentation into site/"
	@echo "make clean        remove .venv, the model, caches; results/ and deploy/ are kept"

quickstart: $(VENV)/.core $(MODEL)
	@echo "==> tuner run $(STUDY): baseline, search, confirmation on held-out prompts"
	@$(BIN)/tuner run $(STUDY)
	@echo "==> tuner export: the recommended server as files in deploy/"
	@$(BIN)/tuner export $(STUDY) --out deploy
	@echo "==> start it with deploy/launch.sh; look closer with $(BIN)/tuner show quickstart"

install: $(VENV)/.dev

test: lint | $(MODEL)
	@echo "==> tests (end-to-end tests on SGLang and vLLM are not among them: see .ci/run)"
	@$(BIN)/python tools/run_tests.py -q -m "not e2e"

lint: $(VENV)/.dev
	@echo "==> ruff check, ruff format, mypy"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

docs: $(VENV)/.docs
	@echo "==> the documentation into site/"
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "site/index.html is its first page"

clean:
	@echo "==> removing .venv, .models, site and caches"
	@rm -rf $(VENV) .models site .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.created:
	@echo "==> creating $(VENV) with $(PYTHON)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, this is " + sys.version.split()[0] + ": make PYTHON=python3.12 …")'
	@$(PYTHON) -m venv --clear $(VENV)
	@touch $@

$(VENV)/.core: pyproject.toml | $(VENV)/.created
	@echo "==> installing the tuner and the bundled llama.cpp server into $(VENV)"
	@$(PIP) install -qq -e '.[embedded]'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/.created
	@echo "==> installing the tuner, the bundled server and the developers' tools into $(VENV)"
	@$(PIP) install -qq -e '.[embedded,dev,report,postgres]'
	@touch $@ $(VENV)/.core

$(VENV)/.docs: pyproject.toml | $(VENV)/.created
	@echo "==> installing what builds the documentation into $(VENV)"
	@$(PIP) install -qq -e '.[embedded,docs]'
	@touch $@

$(MODEL): | $(VENV)/.core
	@echo "==> fetching the model (92 MB, once)"
	@$(BIN)/python -m tuner.embedded.fetch_model .models
