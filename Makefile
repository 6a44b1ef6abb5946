# The commands of this project. `make` alone lists them.
PYTHON ?= python3
TOOLS := .venv/bin/python
SIMULATOR := cd tests && ../$(TOOLS) -m simulator

.PHONY: help env test lint sanity unit artefact molecule demo demo-down bench clean

help: ## list these commands
	@sed -n 's/^\([a-z-]*\):.*## /  make \1|/p' $(MAKEFILE_LIST) | column -t -s '|'

env: .venv/.made ## make the Python environment with the exact tools

.venv/.made: requirements-dev.txt
	$(PYTHON) -m venv .venv
	.venv/bin/pip install --quiet --requirement requirements-dev.txt
	touch $@

test: env ## run everything that CI runs, and clean up after it
	$(TOOLS) tests/run.py

lint sanity unit artefact molecule: env ## run one part of the tests
	$(TOOLS) tests/run.py $@

demo: env ## deploy to two simulated Sparks and show the completion (vllm_launcher=ray or mp)
	$(TOOLS) tests/demo.py $(if $(vllm_launcher),vllm_launcher=$(vllm_launcher))

demo-down: env ## take the simulated Sparks of the demo down
	$(SIMULATOR) down

clean: ## remove what the commands above have made, the Python environment too
	if [ -x $(TOOLS) ]; then $(SIMULATOR) down --all; fi
	rm -rf .venv .cache
