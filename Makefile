# `make demo` and `make test` are all a newcomer needs; both build their own environment first.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet
UV     := uv==0.13.7
# By uv in seconds, where pip takes a minute. If uv cannot, for example because only pip has an index configured, pip does it.
# Neither compiles: most of what is installed is never imported.
install = $(BIN)/uv pip install --quiet --python $(1) $(2) 2>/dev/null || $(PIP) --python $(1) install --no-compile $(2)
LOCK   := $(BIN)/uv pip compile --universal --python-version 3.11 --quiet --generate-hashes --custom-compile-command "make lock"

# Tests start hundreds of processes: without compiled modules, each would compile everything again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo demo-choreography test lint types unit chaos simulate simulate-campaign test-mapping test-upgrade test-dynamodb-local test-streams-local test-airflow deploy-check fix docs diagrams screenshots test-browser bench lock release release-verify image image-verify clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 22

demo: $(VENV)/.runtime ## run the demo on this machine
	@$(BIN)/interlock demo

# With S3=1 on an emulator of AWS, which is installed into a folder of its own.
demo-choreography: $(VENV)/.runtime $(if $(S3),$(VENV)/emulators/.ready) ## play three stages that hand over through files, with crashes, in about a minute (S3=1: on an emulator)
	@$(BIN)/python examples/choreography/play.py $(if $(S3),--s3 $(VENV)/emulators/bin/ministack)

test: ## run lint, types and every test: what must pass before a change lands
	@$(MAKE) --no-print-directory lint
# Together: the checker of types computes while emulators are fetched and tests wait.
	@$(MAKE) --no-print-directory -j3 types unit

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/basedpyright

# More processes than cores: many tests wait for real workers, and others can use that time.
TEST_PROCESSES ?= 5
unit: $(VENV)/.compiled $(VENV)/emulators/.ready $(VENV)/browser/.ready
	$(BIN)/pytest -n $(TEST_PROCESSES) --dist loadgroup

CHAOS_ROUNDS ?= 500
SOAK_MINUTES ?= 60
chaos: $(VENV)/.dev $(VENV)/emulators/.ready ## run the races and kills of `make test`, with many more rounds (CHAOS_ROUNDS=500)
	CHAOS_ROUNDS=$(CHAOS_ROUNDS) $(BIN)/pytest tests/contract/test_sqlite_processes.py
	CHAOS_ROUNDS=$(CHAOS_ROUNDS) $(BIN)/pytest -n 2 -rP tests/scenario/test_worker_processes.py
	CHAOS_ROUNDS=$(CHAOS_ROUNDS) $(BIN)/pytest -n 2 tests/scenario/test_crash_points.py
	CHAOS_ROUNDS=$(CHAOS_ROUNDS) $(BIN)/pytest -rP tests/scenario/test_bulk_processes.py tests/scenario/test_archive_processes.py
	CHAOS_ROUNDS=$(CHAOS_ROUNDS) $(BIN)/pytest tests/scenario/test_collected_parts_processes.py tests/scenario/test_choreography_example.py
	CHAOS_ROUNDS=$(CHAOS_ROUNDS) $(BIN)/pytest tests/aws/test_collected_parts_on_aws.py tests/aws/test_part_archive_processes.py
	CHAOS_ROUNDS=$(CHAOS_ROUNDS) $(BIN)/pytest --timeout 7200 -rP tests/scenario/test_redis_processes.py
	CHAOS_ROUNDS=$(CHAOS_ROUNDS) $(BIN)/pytest -rP tests/scenario/test_redis_crash_points.py tests/simulation/test_redis_histories.py
	SOAK_MINUTES=$(SOAK_MINUTES) $(BIN)/pytest --timeout 7200 tests/scenario/test_shard_soak.py
	CHAOS_ROUNDS=$(CHAOS_ROUNDS) $(BIN)/pytest -s tests/aws/test_worker_processes_aws.py tests/aws/test_takeovers.py

SEED ?= 1
SEEDS ?= 1
PIPELINES ?= 50
HOURS ?= 72
BEAT ?= real
WORKERS ?=
VARIED ?=
simulate: $(VENV)/.dev ## play random histories of the whole worker (SEED=1 SEEDS=1 PIPELINES=50 HOURS=72 WORKERS=3 DOWNSTREAMS=0 PROBES=0)
	$(BIN)/python -m tests.simulation --seed $(SEED) --seeds $(SEEDS) --pipelines $(PIPELINES) --hours $(HOURS) --beat $(BEAT) \
		$(if $(WORKERS),--workers $(WORKERS)) $(if $(DOWNSTREAMS),--downstreams $(DOWNSTREAMS)) $(if $(PROBES),--probes $(PROBES)) $(if $(VARIED),--varied)

CAMPAIGN_SEEDS ?= 5000
PROCESSES ?= 2
CAMPAIGN_FILE ?= simulated.jsonl
simulate-campaign: $(VENV)/.dev ## play thousands of histories of many sizes (SEED=1 CAMPAIGN_SEEDS=5000 PROCESSES=2)
	$(BIN)/python -m tests.simulation.campaign --seed $(SEED) --seeds $(CAMPAIGN_SEEDS) --processes $(PROCESSES) --file $(CAMPAIGN_FILE)

test-mapping: $(VENV)/.dev ## compare the period mapping of `after` with its oracle at every period of 400 days (20 minutes)
	MAPPING_EVERY_PERIOD=1 $(BIN)/pytest --timeout 7200 -rP --durations 3 tests/unit/core/dependencies/test_period_mapping.py \
		>$(VENV)/mapping.log || { cat $(VENV)/mapping.log; exit 1; }
	@awk '/^compared/ {n += $$2} END {print n " periods compared"}' $(VENV)/mapping.log
	@tail -n 1 $(VENV)/mapping.log

# The newest release, if there is one; any commit will do.
UPGRADE_FROM ?= $(shell git describe --tags --abbrev=0 --match 'v*' 2>/dev/null)
test-upgrade: $(VENV)/.dev ## run workers of an earlier commit and of this one side by side, there and back (UPGRADE_FROM=COMMIT)
	@test -n "$(UPGRADE_FROM)" || { echo "name the earlier commit: make test-upgrade UPGRADE_FROM=COMMIT"; exit 2; }
	UPGRADE_FROM=$(UPGRADE_FROM) $(BIN)/pytest -rP tests/scenario/test_rolling_upgrade.py

test-browser: $(VENV)/.dev $(VENV)/browser/.ready ## test the console in a real Chromium, every page and theme; fails without one
	BROWSER_TESTS=all $(BIN)/pytest tests/browser

test-dynamodb-local: $(VENV)/.dev ## run the contract suite on DynamoDB Local (needs npm and Java 17)
	$(BIN)/python -m tests.dynamodb_local

test-streams-local: $(VENV)/.dev ## test the stream adapters on DynamoDB Local and kinesis-local (needs npm, Node and Java 17)
	$(BIN)/python -m tests.kinesis_local

test-airflow: $(VENV)/.dev ## run the contract suite on real Airflows, 2 and 3 (fetches both; takes minutes)
	$(BIN)/python -m tests.real_airflow

deploy-check: $(VENV)/.dev $(VENV)/emulators/.ready $(VENV)/deploy/.ready ## check the Terraform module on an emulator, and build a real image (needs terraform; buildah, debootstrap and root for the image)
	$(BIN)/python -m tests.deploy.check

fix: $(VENV)/.dev ## format the code and apply the linter's fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The sources are the repository itself, so that links are the same on the site and in the files.
docs: $(VENV)/docs/.ready ## build the docs site into build/docs; a broken link fails
	@rm -rf build/docs
	$(VENV)/docs/bin/python -m sphinx -q -W --keep-going -n -E -b html -c docs . build/docs
	@echo "the docs are in build/docs/index.html"

diagrams: $(VENV)/.dev ## draw the diagrams of the docs from the code
	$(BIN)/python -m docs.diagrams.draw

screenshots: $(VENV)/.dev $(VENV)/browser/.ready ## take the console's screenshots into docs/images, from the demo's store (needs Chromium)
	$(BIN)/python -m tests.support.pages.screenshots

bench: $(VENV)/.dev ## measure speed and memory, as ratios against named peers
	$(BIN)/python -m bench

lock: $(VENV)/.dev ## update the lock files in requirements from pyproject.toml
	$(PIP) install $(UV)
	$(LOCK) pyproject.toml --extra alb --extra otel --extra postgresql --extra redis -o requirements/runtime.txt
	$(LOCK) pyproject.toml --extra alb --group dev -o requirements/dev.txt
	$(LOCK) --group pyproject.toml:emulators -o requirements/emulators.txt
	$(LOCK) --group pyproject.toml:deploy -o requirements/deploy.txt
	$(LOCK) --group pyproject.toml:docs -o requirements/docs.txt
	$(LOCK) --group pyproject.toml:build -o requirements/build.txt
	$(LOCK) --group pyproject.toml:release -o requirements/release.txt

# Built twice from what is committed, in places and with settings that differ: the digests must not.
release: $(VENV)/release/.ready ## build wheel, sdist, bill of materials and provenance into dist, twice, and compare and verify them
	$(VENV)/release/bin/python -m deploy.release build

release-verify: $(VENV)/release/.ready ## check dist against its digests, the lock files and a build of its commit
	$(VENV)/release/bin/python -m deploy.release verify

image: ## build the image for both architectures with labels, SBOM and provenance, and verify it (needs docker buildx and BASE=NAME@sha256:… or BASE=resolve; IMAGE_DRY_RUN=1 shows the command)
	BASE=$(BASE) $(PYTHON) -m deploy.release.image $(if $(IMAGE_DRY_RUN),--dry-run)

IMAGE ?= $(wildcard build/*.oci.tar)
image-verify: ## check the archive of an image: both architectures, labels, SBOM, provenance, digests (IMAGE=FILE; needs no engine)
	$(PYTHON) -m deploy.release.image_check $(IMAGE)

clean: ## remove everything that the other targets create
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@$(PIP) install --no-compile $(UV) || echo "uv is not available; pip takes a little longer"

# Each stamp is newer than what it installed, so an unchanged lock file costs nothing the next time.
$(VENV)/.runtime: requirements/runtime.txt pyproject.toml | $(VENV)/bin/python
	@echo "installing the dependencies of the worker"
	@$(call install,$(BIN)/python,-r requirements/runtime.txt)
	@$(call install,$(BIN)/python,--no-deps --editable .)
	@touch $@

$(VENV)/.dev: requirements/dev.txt $(VENV)/.runtime
	@echo "installing the dependencies of the tests"
	@$(call install,$(BIN)/python,-r requirements/dev.txt)
	@touch $@

# A Chromium for the console's tests: the machine's, else one that npm fetches, which needs no root.
# Without one those tests are skipped, so nothing fails here.
$(VENV)/browser/.ready: tests/support/browser/fetch.py | $(VENV)/.dev
	@$(BIN)/python -m tests.support.browser.fetch
	@mkdir -p $(@D) && touch $@

# In a fresh clone, one process compiles the tests and what they import; or each test process would, at the same time.
$(VENV)/.compiled: $(VENV)/.dev
	@$(BIN)/pytest --collect-only -q >/dev/null 2>&1 || true
	@touch $@

$(VENV)/emulators/.ready $(VENV)/deploy/.ready $(VENV)/docs/.ready $(VENV)/release/.ready: $(VENV)/%/.ready: requirements/%.txt | $(VENV)/bin/python
	@echo "installing $<"
	@$(PYTHON) -m venv --without-pip $(VENV)/$*
	@$(call install,$(VENV)/$*/bin/python,-r $<)
	@touch $@
