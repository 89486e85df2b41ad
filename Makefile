# make demo and make test are all that a newcomer needs: each makes .venv first if it is missing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# A folder of your own for the demonstration's output: make demo DEMO_DIR=somewhere
DEMO_DIR ?= outputs/demo
SENTENCE := She opened the door of the old house, and the dog ran to her.

# All cores, a file at a time, as tests of one file share what they trained.
PARALLEL := -n auto --dist loadfile
QUICKLY := not slow and not gpu and not network
CORE := tests/test_import_order.py tests/model tests/trees tests/tasks
RUNNERS := pytest pytest-timeout pytest-xdist hypothesis psutil

.DEFAULT_GOAL := help
.PHONY: help setup demo gallery test test-quick test-slow test-upstream test-lowest test-latest docs lint format

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

look = HF_HUB_OFFLINE=1 $(BIN)/hf-gpt analyze $(1) --model_name_or_path model_cards/gpt-mini \
	--output_dir scripts/measure/results/gallery/$(1) --overwrite

gallery: $(STAMP) ## Draw what analyze finds in gpt-mini, into scripts/measure/results/gallery
	$(call look,attention)
	$(call look,ablate)
	$(call look,neurons)
	$(call look,lens) --text "$(SENTENCE)"
	$(call look,importance) --text "$(SENTENCE)"
	$(call look,probe) --max_texts 600
	$(call look,agreement) --max_pairs 50
	$(call look,project) --nearest night --analogy he his she

test: $(STAMP) ## Run the quick tests
	$(BIN)/python -m pytest -q $(PARALLEL) -m "$(QUICKLY)"

test-quick: $(STAMP) ## Run the tests of the model, the trees and the tasks: under a minute on two cores
	$(BIN)/python -m pytest -q $(PARALLEL) -m "$(QUICKLY) and not whole" $(CORE)

test-slow: $(STAMP) ## Run the long tests too, test-upstream among them
	$(BIN)/python -m pytest -q -m "not gpu and not network"
	$(BIN)/python tests/upstream/run.py

test-upstream: $(STAMP) ## Run transformers' and peft's own tests, which come from PyPI, on the classes of hf_gpt
	$(BIN)/python tests/upstream/run.py

test-lowest: $(STAMP) ## Run the quick tests with the lowest versions that pyproject.toml allows
	$(PYTHON) -m venv .venv-lowest
	$(BIN)/python tests/bounds.py > .venv-lowest/lowest.txt
	.venv-lowest/bin/python -m pip install -q -r .venv-lowest/lowest.txt $(RUNNERS) -e .
	.venv-lowest/bin/python -m pytest -q $(PARALLEL) -m "$(QUICKLY) and not whole" $(CORE)

test-latest: $(STAMP) ## Run the quick tests with the newest versions that pyproject.toml allows
	$(PYTHON) -m venv .venv-latest
	grep "^torch==" constraints.txt > .venv-latest/torch.txt
	.venv-latest/bin/python -m pip install -q -U -c .venv-latest/torch.txt $(RUNNERS) -e .
	.venv-latest/bin/python -m pytest -q $(PARALLEL) -m "$(QUICKLY) and not whole" $(CORE)

docs: $(STAMP) ## Build the documentation strictly, into outputs/site
	$(BIN)/python -m pip install -q -e ".[docs]"
	$(BIN)/mkdocs build --strict

lint: $(STAMP) ## Check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(STAMP) ## Put style and formatting right
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
