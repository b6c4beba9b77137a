# Every command of the project. `make help` lists them.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.lethe-setup
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help
help: ## List the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-18s %s\n", $$1, $$2}'

.PHONY: setup
setup: $(STAMP) ## Create .venv with the pinned, hashed dependencies and this project

$(STAMP): requirements-dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "lethe needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "python3 -m venv failed: on Debian, apt-get install python3-venv"; exit 2; }
	$(BIN)/python -m pip install --quiet --require-hashes --requirement requirements-dev.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

STAMP_ALL := $(VENV)/.lethe-setup-all
.PHONY: setup-all
setup-all: $(STAMP_ALL) ## Add what only `make test-all` needs: other extras, Debian's Chromium and PostgreSQL, Helm, Debezium

$(STAMP_ALL): $(STAMP) requirements-all.lock scripts/debian_packages scripts/axe_core scripts/helm
	scripts/debian_packages
	scripts/axe_core $(VENV)/share/axe
	scripts/helm version >/dev/null || test -z "$(CI)"
	scripts/cdc fetch || test -z "$(CI)"
	$(BIN)/python -m pip install --quiet --require-hashes --requirement requirements-all.lock
	@touch $@

.PHONY: demo
demo: setup ## Run the main job on real data: deletions, refreshes, checks against retraining
	$(BIN)/lethe demo

PYTEST := $(BIN)/python -m pytest -n 2 --dist loadgroup --no-loadscope-reorder

.PHONY: test
test: setup ## Run the tests, in 4 to 7 minutes (real Kafka needs Java 17 and Maven, or Docker)
	OPENBLAS_NUM_THREADS=1 $(PYTEST) -n 3 -m "not thorough"

.PHONY: test-all
test-all: setup-all ## Run the tests and every proof, in a little over an hour
	$(PYTEST)

.PHONY: test-thorough
test-thorough: setup-all ## Run what `make test` leaves out
	$(PYTEST) -m thorough --durations 25 --durations-min 10

.PHONY: test-fast
test-fast: setup ## Run the tests that start no server
	$(BIN)/python -m pytest -n 2 tests/unit

.PHONY: lint
lint: setup ## Check format, lint and types (strict)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy --cache-dir .mypy_cache/scripts scripts/kafka deploy/healthcheck.py deploy/serving/app.py
	$(BIN)/mypy --cache-dir .mypy_cache/cdc scripts/cdc
	MYPYPATH=scripts $(BIN)/mypy --cache-dir .mypy_cache/measures $(wildcard scripts/*.py) $(dir $(wildcard scripts/*/__init__.py))

.PHONY: format
format: setup ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: contract
contract: setup ## Write docs/contract: a JSON Schema of each event, and an AsyncAPI document
	$(BIN)/python scripts/contract.py

.PHONY: manifests
manifests: setup ## Write the files of deploy/ that are made from the code: dashboard, Strimzi's resources
	$(BIN)/python scripts/manifests.py

.PHONY: docs
docs: setup ## Build the docs as a site, build/docs/site/index.html; a link that leads nowhere fails
	rm -rf build/docs && mkdir -p build/docs && cp -r docs docs/zensical.toml build/docs
	cd build/docs && NO_COLOR=1 ../../$(BIN)/zensical build --strict --config-file zensical.toml

.PHONY: bench
bench: setup ## Measure the service: end-to-end time, throughput, what a commit and options cost, docs/bench.md
	$(BIN)/python scripts/study.py bench

.PHONY: paper
paper: setup ## Run the paper's experiments at its sizes: docs/paper.md (resumable; YELP=FILE)
	$(BIN)/python scripts/study.py paper $(if $(YELP),--yelp "$(YELP)")

.PHONY: paper-quick
paper-quick: setup ## The paper's experiments at small sizes, in under 3 minutes
	$(BIN)/python scripts/study.py paper --quick

.PHONY: stream-study
stream-study: setup ## Thousands of deletions in a row: true error, published bound, cost, docs/stream.md
	$(BIN)/python scripts/study.py stream

.PHONY: kernels
kernels: setup ## Measure the kernels: the cost of a deletion against d and n, docs/kernels.md
	$(BIN)/python scripts/study.py kernels

.PHONY: scale
scale: setup ## Measure a model with its rows in files, beside pandas and scikit-learn, docs/scale.md (ROWS=n FEATURES=p KIND=logistic PREPROCESS=1)
	$(BIN)/python scripts/scale.py $(if $(ROWS),--rows $(ROWS)) $(if $(FEATURES),--features $(FEATURES)) $(if $(KIND),--kind $(KIND)) $(if $(PREPROCESS),--preprocess)

.PHONY: many-models
many-models: setup ## A thousand models on one worker, and on two; how soon a killed worker is replaced (MODELS=n RATE=n KILLS=n)
	$(BIN)/python scripts/many_models.py $(if $(MODELS),--models $(MODELS)) $(if $(RATE),--rate $(RATE)) $(if $(KILLS),--kills $(KILLS))

.PHONY: capacity
capacity: setup ## What a load needs, docs/capacity.md (USERS=n MODELS=n ERASURES=n a day; MEASURE=1, CALIBRATE=1)
	$(BIN)/python scripts/study.py capacity $(if $(CALIBRATE),--calibrate) $(if $(MEASURE),--measure) $(if $(USERS),--users $(USERS)) $(if $(MODELS),--models $(MODELS)) $(if $(ERASURES),--erasures $(ERASURES))

.PHONY: simulate
simulate: setup ## Simulate 10,000 seeds of faults (SEEDS=n), or repeat one (SEED=s)
	$(BIN)/python -m tests.proof.simulation $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),10000))

.PHONY: model
model: setup ## Check the commit protocol state by state, docs/model.md (QUICK=1, ONLY="commit")
	$(BIN)/python -m tests.proof.model $(if $(QUICK),--quick) $(if $(ONLY),--only "$(ONLY)")

.PHONY: chaos
chaos: setup ## Real servers, real faults, every promise checked (SECONDS=60 SEED=n PAUSE=2 DURABILITY=mixed RATE=100 CLUSTER=1 TABLE=file)
	$(BIN)/python -m tests.proof.chaos $(if $(SECONDS),--seconds $(SECONDS)) $(if $(SEED),--seed $(SEED)) $(if $(PAUSE),--pause $(PAUSE)) $(if $(DURABILITY),--durability $(DURABILITY)) $(if $(CLUSTER),--cluster) $(if $(RATE),--rate $(RATE)) $(if $(TABLE),--table $(TABLE))

.PHONY: crash
crash: setup ## End the workers at every named step in every way, on Redis Streams and on Kafka
	LETHE_TEST_EVERY_WAY=1 $(BIN)/python -m pytest -q -n 2 tests/integration/commits/test_crash.py

.PHONY: http-load
http-load: setup ## Measure the HTTP API under 100 clients beside bare acknowledged sends (REQUESTS=20000 RATE=200 LOG=streams)
	$(BIN)/python scripts/http_load.py $(if $(REQUESTS),--requests $(REQUESTS)) $(if $(RATE),--rate $(RATE)) $(if $(LOG),--log $(LOG))

.PHONY: http-fuzz
http-fuzz: setup-all ## Send the HTTP API requests that are generated from its OpenAPI document (CASES=20000)
	$(BIN)/python -m tests.proof.http $(if $(CASES),--cases $(CASES))

.PHONY: fuzz
fuzz: setup ## Fuzz every decoder, coverage-guided, SECONDS=60 each (ONLY=name for one), docs/fuzzing.md
	$(BIN)/python -m tests.proof.fuzz --seconds $(or $(SECONDS),60) $(if $(ONLY),--only $(ONLY))

.PHONY: bounds
bounds: setup ## Judge published bounds and estimates against an 80-bit oracle (SEEDS=n)
	$(BIN)/python -m tests.proof.bounds $(if $(SEEDS),--seeds $(SEEDS)) $(if $(FIRST),--first $(FIRST)) $(if $(ONLY),--only $(ONLY)) $(if $(TUNING),--tuning-only) $(if $(JSON),--json $(JSON))

.PHONY: exact
exact: setup ## Linear models after 10,000 streams of changes, byte for byte, docs/exact.md (SEEDS=n of each family)
	$(BIN)/python -m tests.proof.exact $(if $(SEEDS),--seeds $(SEEDS))

.PHONY: conversions
conversions: setup ## Convert scikit-learn's estimators and pipelines, setting by setting, docs/scikit-learn.md (SEED=n SIZE=n)
	$(BIN)/python -m tests.proof.conversions $(if $(SEED),--seed $(SEED)) $(if $(SIZE),--size $(SIZE))

.PHONY: pipelines
pipelines: setup ## Register ordinary scikit-learn pipelines: right, or refused by name, docs/scikit-learn.md (SEED=n)
	$(BIN)/python -m tests.proof.pipelines $(if $(SEED),--seed $(SEED))

.PHONY: sbom
sbom: setup ## Write the software bill of materials (CycloneDX) to dist/lethe.cdx.json
	$(BIN)/python scripts/sbom.py

.PHONY: audit-dependencies
audit-dependencies: setup ## Look for pinned packages in a directory of OSV advisories (ADVISORIES=dir)
	$(BIN)/python scripts/audit_dependencies.py --advisories "$(ADVISORIES)" $(foreach id,$(ACCEPT),--accept $(id))

.PHONY: mutants
mutants: setup ## Take out one guard at a time and see each caught: a table (ONLY="words of names")
	$(BIN)/python -m tests.proof.mutants $(ONLY)

.PHONY: lock
lock: setup ## Pin the dependencies again, with hashes and without index addresses
	$(BIN)/uv pip compile -q pyproject.toml --generate-hashes --no-emit-index-url --python-version 3.11 --universal --custom-compile-command "make lock" -o requirements.lock
	$(BIN)/uv pip compile -q pyproject.toml --group dev --generate-hashes --no-emit-index-url --python-version 3.11 --universal --custom-compile-command "make lock" -o requirements-dev.lock
	$(BIN)/uv pip compile -q pyproject.toml --extra server --constraint requirements-dev.lock --generate-hashes --no-emit-index-url --python-version 3.11 --universal --custom-compile-command "make lock" -o deploy/requirements-server.lock
	$(BIN)/uv pip compile -q pyproject.toml --group all --constraint requirements-dev.lock --generate-hashes --no-emit-index-url --python-version 3.11 --universal --custom-compile-command "make lock" -o requirements-all.lock

.PHONY: clean
clean: ## Remove the environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
