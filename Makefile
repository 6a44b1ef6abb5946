# The commands of this project. `make` alone lists them.
PYTHON ?= python3
TOOLS := .venv/bin/python
SIMULATOR := cd tests && ../$(TOOLS) -m simulator

.PHONY: help env test lint sanity unit artefact molecule demo demo-down bench arguments engine clean

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

bench: env ## what planning, diagnosing and a deploy without change cost (the last needs `make demo` before)
	$(TOOLS) benchmarks/plan_time.py
	$(TOOLS) benchmarks/diagnose.py
	$(TOOLS) benchmarks/no_change.py

arguments: env ## hold every command line of the plan against vLLM's own parser, release by release (slow)
	$(TOOLS) tests/arguments

engine: env ## hold the plan's KV cache against a real vLLM: VLLM_PYTHON=python of an environment with vLLM (slow)
	$(TOOLS) -m pytest tests/engine

clean: ## remove what the commands above have made, the Python environment too
	if [ -x $(TOOLS) ]; then $(SIMULATOR) down --all; fi
	rm -rf .venv .cache
