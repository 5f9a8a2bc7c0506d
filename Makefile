# `make help` lists the targets. Two of them are all a newcomer needs: `make demo` and `make test`.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest
UV ?= uv
# More workers than processors: many tests wait for sockets. Chunks of neighbours, and who is done takes of the others'.
FAST := -n 4 --dist worksteal --durations=40 --junitxml .local/test-fast.xml
# Takes the cluster down when the recipe ends, however it ends; KEEP=1 leaves it up.
WITH_CLUSTER := trap 'test -n "$${KEEP:-}" || dev/cluster down' EXIT; dev/cluster up

# Not `make images`: a line that calls make runs even under `make -n`, and would then really start a cluster.
IMAGES := dev/image operator; dev/image gateway; dev/image testapp
LONG_IMAGES := $(IMAGES); dev/image engine
# The tests on the cluster that is up, in the three parts of tests/cluster/conftest.py; $(1) selects tests.
# What fails in one part does not hide what the next would have shown.
CLUSTER_TESTS = failed=; \
	for part in "without-operator --numprocesses 4 --dist loadfile" "side-by-side --numprocesses $(WORKERS) --dist load --maxschedchunk 1" alone; do \
	dev/cluster exec $(PYTEST) tests/cluster $(1) --durations 40 --part $$part || failed="$$failed $${part%% *}"; \
	done; test -z "$$failed" || { echo "failed parts of tests/cluster:$$failed" >&2; exit 1; }
# Stories that run side by side; they sleep most of the time.
WORKERS ?= 6

.PHONY: help setup machine lint format test test-fast test-changed test-cluster test-long lane-llama-server lane-vllm hammer demo mutants bench-operator bench-gateway images clean lock

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  \1|\2/' | column -t -s '|'

setup: machine .venv/.installed ## install what is missing: system packages (as root on Debian, Ubuntu) and .venv

machine:
	@$(PYTHON) dev/setup

# The stamp is older than a changed lock file, so the environment follows it; otherwise this costs nothing.
.venv/.installed: requirements/dev.txt pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --require-hashes --requirement requirements/dev.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

lint: setup ## formatting, lints, types, layers, commit messages, generated files and mutations
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	MYPYPATH=dev $(BIN)/mypy -p devcluster -p demolib -p gatewaybench -p mutation -p testchoice -p vllmlane -m checkoutvenv
	MYPYPATH=dev:tests $(BIN)/mypy --follow-imports silent -p operatorbench -p hammerlane
	$(BIN)/mypy --strict dev/check-commits
	$(BIN)/lint-imports
	$(BIN)/python dev/mutants --check
	$(BIN)/tidegate crd --check --reference docs/reference/llmservice.md
	$(BIN)/python dev/check-commits

format: setup ## let ruff repair and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test-fast: setup ## the tests that need no cluster
	$(PYTEST) tests --ignore tests/cluster -m "not long" $(FAST)

test-changed: setup ## a minute of the tests that concern what differs from main
	dev/test-changed

test-cluster: setup ## the tests on a real cluster, which comes up for them and goes down after
	$(WITH_CLUSTER); $(IMAGES); $(call CLUSTER_TESTS,-m "not long")

# What fails in one part does not hide what the next would have shown: one run tells all.
test: setup ## everything that must hold: lint, then all tests, the real cluster's included
	@failed= took=; for part in lint test-fast test-cluster; do \
	  SECONDS=0; $(MAKE) $$part || failed="$$failed $$part"; took="$$took $$part $$SECONDS"; \
	done; \
	printf '%-14s%6s s\n' $$took; test -z "$$failed" || { echo "failed:$$failed" >&2; exit 1; }

test-long: lint ## `test`, and the tests that take many minutes
	$(PYTEST) tests --ignore tests/cluster $(FAST)
	$(WITH_CLUSTER); $(LONG_IMAGES); $(call CLUSTER_TESTS)

lane-llama-server: setup ## the unmodified llama-server at LLAMA_SERVER=PATH behind the gateway, on a real cluster
	@test -x "$(LLAMA_SERVER)" || { echo "LLAMA_SERVER must be the path of a llama-server program" >&2; exit 2; }
	$(WITH_CLUSTER); $(LONG_IMAGES); dev/image llama-server --program "$(LLAMA_SERVER)" $(if $(LLAMA_ROOT),--root "$(LLAMA_ROOT)"); \
	dev/cluster exec $(PYTEST) tests/cluster/lane_llama_server.py

lane-vllm: setup ## vLLM of the environment at VLLM=DIR behind the gateway, on the CPU and without Kubernetes
	@test -x "$(VLLM)/bin/vllm" || { echo "VLLM must be the directory of an environment that has vLLM" >&2; exit 2; }
	"$(VLLM)/bin/python" dev/lane-vllm

hammer: setup ## rough traffic, broken engines and noise for three minutes each; ARGS="--seconds S --seed N"
	$(BIN)/python dev/hammer $(ARGS)

demo: setup ## a rollout under load to look at; KEEP=1 keeps the cluster
	@$(WITH_CLUSTER); $(IMAGES); dev/demo

mutants: setup ## take each lock, precondition and wait of the operator away, and see a test fail; SHARD=I/N runs a part
	$(BIN)/python dev/mutants $(if $(SHARD),--shard $(SHARD)) $(if $(JOBS),--jobs $(JOBS))

bench-operator: setup ## figures of the operator on a real cluster, as a table
	$(WITH_CLUSTER); $(IMAGES); dev/cluster exec $(BIN)/python dev/bench-operator

bench-gateway: setup ## figures of the gateway beside Envoy, and HAProxy and nginx where they are installed
	$(BIN)/python -m pip install --quiet --require-hashes --requirement requirements/bench.txt
	$(BIN)/python dev/bench-gateway -o docs/reference/bench-gateway.md

images: setup ## pack the images and load them into the cluster that is up
	$(IMAGES)

clean: ## take the cluster down and remove what was made in the checkout
	dev/cluster down
	rm -rf .venv .local .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist

lock: ## resolve pyproject.toml into the hashed requirements again (needs uv)
	$(UV) pip compile pyproject.toml --generate-hashes --no-emit-index-url --no-header --universal --python-version 3.11 --extra operator -o requirements/operator.txt
	$(UV) pip compile pyproject.toml --generate-hashes --no-emit-index-url --no-header --universal --python-version 3.11 --extra gateway --extra uvloop -o requirements/gateway.txt
	$(UV) pip compile pyproject.toml --generate-hashes --no-emit-index-url --no-header --universal --python-version 3.11 --extra operator --extra gateway --extra uvloop --group dev -o requirements/dev.txt
	$(UV) pip compile pyproject.toml --generate-hashes --no-emit-index-url --no-header --universal --python-version 3.11 --group engine -o requirements/engine.txt
	$(UV) pip compile pyproject.toml --generate-hashes --no-emit-index-url --no-header --universal --python-version 3.11 --group bench -o requirements/bench.txt
