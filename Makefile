# make demo and make test are all that a newcomer needs: each makes .venv first if it is missing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# A folder of your own for the demonstration's output: make demo DEMO_DIR=somewhere
DEMO_DIR ?= outputs/demo

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow test-upstream lint help-texts format

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /  \1\t/' | expand -t 17

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt -e ".[dev]"
	touch $(STAMP)

setup: $(STAMP) ## Make .venv and install hf_gpt with its tests' needs

demo: $(STAMP) ## Fine-tune gpt-mini on the questions that the repository carries, without network
	HF_HUB_OFFLINE=1 $(BIN)/python scripts/finetune.py --config scripts/configs/questions.yaml --use_cpu \
		--output_dir $(DEMO_DIR) --overwrite_output_dir

test: $(STAMP) ## Run the quick tests
	$(BIN)/python -m pytest -q -m "not slow and not gpu and not network"

test-slow: $(STAMP) ## Run the long tests too, test-upstream among them
	$(BIN)/python -m pytest -q -m "not gpu and not network"
	$(BIN)/python tests/upstream/run.py

test-upstream: $(STAMP) ## Run transformers' and peft's own tests, which come from PyPI, on the classes of hf_gpt
	$(BIN)/python tests/upstream/run.py

lint: $(STAMP) ## Check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

help-texts: $(STAMP) ## Write what --help prints, scripts/help, anew
	$(BIN)/python scripts/quick_start.py

format: $(STAMP) ## Put style and formatting right
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
