# Each target sets up .venv by itself. ARGS are passed on: make train ARGS="data=ag_news model=base"
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
INSTALL := $(PIP) --editable
# PyPI's torch for Linux brings CUDA's libraries, several GB. Where there is no NVIDIA GPU, the build for a CPU; uv finds the right one by itself.
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
FOR_CPU := $(PIP) --no-deps --retries 0 --index-url $(TORCH_INDEX) torch
BY_UV := uv pip install --quiet --no-deps --python $(BIN)/python --constraint constraints.txt --torch-backend=auto torch
CPU_BUILD := $(if $(shell command -v nvidia-smi),,$(FOR_CPU))
TORCH := $(or $(if $(shell command -v uv),$(BY_UV)),$(CPU_BUILD))

.PHONY: install train demo demo-minilm test test-slow test-hard check audit format

# outputs/first, unless there is one already or ARGS choose the folder. Then headscope names the run by data and time.
FIRST := $(if $(wildcard outputs/first)$(filter name=% resume=% outputs_dir=% -m --multirun --help,$(ARGS)),,name=first)

install: $(VENV)/.run

train: $(VENV)/.run
	$(BIN)/headscope train $(FIRST) $(ARGS)

# The page that README.md links, of outputs/first.
demo: $(VENV)/.run
	$(BIN)/headscope page run=outputs/first output=docs/demo/index.html overwrite=true dtype=float16 $(ARGS)

# The page of a fine-tuned MiniLM: `headscope train experiment=minilm name=minilm` first (docs/pretrained.md).
demo-minilm: $(VENV)/.run
	$(BIN)/headscope page run=outputs/minilm output=outputs/minilm/page.html overwrite=true $(ARGS)

# Two processes: a file of tests by itself (`pytest tests/data/test_source.py`) runs in one, where a debugger works.
WORKERS := -n 2 --dist worksteal

# Where it is forbidden to write bytecode, each process of a test would compile all again: a third of the time.
test test-slow test-hard: export PYTHONDONTWRITEBYTECODE =

test: $(VENV)/.test
	$(BIN)/python -m pytest $(WORKERS) -m "not slow" $(ARGS)

test-slow: $(VENV)/.test
	$(BIN)/python -m pytest $(WORKERS) -m slow $(ARGS)

test-hard: $(VENV)/.test
	HARD=full $(BIN)/python -m pytest $(WORKERS) tests/hard $(ARGS)

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Known faults of the tested versions; asks pypi.org.
audit: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet pip-audit
	$(BIN)/pip-audit --requirement constraints.txt --no-deps --disable-pip

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(if $(TORCH),$(TORCH) || echo "no torch from $(TORCH_INDEX): the one of PyPI is installed")

$(VENV)/.run: $(BIN)/python pyproject.toml constraints.txt
	$(INSTALL) ".[demo]"
	@touch $@

$(VENV)/.test: $(BIN)/python pyproject.toml constraints.txt
	$(INSTALL) ".[test]"
	@touch $@ $(VENV)/.run

$(VENV)/.dev: $(BIN)/python pyproject.toml constraints.txt
	$(INSTALL) ".[dev]"
	@touch $@ $(VENV)/.test $(VENV)/.run
