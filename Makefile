# Names for the commands that people and CI run. The work is done by cargo and the scripts in tests/.

CACHE ?= $(or $(LOCKSTEP_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/lockstep)
VENV := $(CACHE)/venv
MODEL ?= smollm2-135m
ARGS ?=
NPM := $(shell command -v npm)
NODE := $(CACHE)/node

.PHONY: build serve test verify-fmt verify-clippy verify-test-cuda test-clients soak soak-tiny fuzz venv node model clean

build:
	cargo build --release -p lockstep

# Builds, fetches the model once, and serves it on 127.0.0.1:8000.
serve: build
	cargo run --release -q -p lockstep -- pull $(MODEL)
	cargo run --release -q -p lockstep -- serve --model $(MODEL) $(ARGS)

# Installs what the tests need (Python packages into $(VENV), the model into the cache) and runs them.
test: venv node model
	LOCKSTEP_PYTHON=$(VENV)/bin/python $(if $(NPM),LOCKSTEP_NODE_MODULES=$(NODE)) \
		cargo test --release --workspace

venv: $(VENV)/.stamp

$(VENV)/.stamp: tests/requirements.txt
	python3 -m venv $(VENV)
	$(VENV)/bin/python -m pip install -q --disable-pip-version-check -r tests/requirements.txt
	touch $@

# The npm client of OpenAI's API; without npm its test is skipped, and says so.
node: $(if $(NPM),$(NODE)/.stamp)

$(NODE)/.stamp: tests/clients/package.json
	mkdir -p $(NODE)
	cp tests/clients/package.json $(NODE)/
	cd $(NODE) && npm install --silent --no-audit --no-fund
	touch $@

model: build
	cargo run --release -q -p lockstep -- pull $(MODEL)

# Clients that build on others (litellm, langchain-openai, instructor, llm, schemathesis), and the evaluation harness lm-eval,
# against the real model. lm-eval needs no torch: it asks the server for tokens and logprobs.
test-clients: model $(CACHE)/venv-clients/.stamp
	LOCKSTEP_DEFAULT_MAX_TOKENS=64 tests/clients/run.sh $(MODEL) \
		$(CACHE)/venv-clients/bin/python tests/clients/other_clients.py URL/v1
	tests/clients/run.sh $(MODEL) $(CACHE)/venv-clients/bin/python tests/clients/lm_eval_check.py URL/v1

$(CACHE)/venv-clients/.stamp: tests/clients/requirements.txt
	python3 -m venv $(CACHE)/venv-clients
	$(CACHE)/venv-clients/bin/python -m pip install -q --disable-pip-version-check -r tests/clients/requirements.txt
	touch $@

# A thousand streaming connections for SECONDS_OF_SOAK: no request fails but with a 429, and memory
# stays flat. The KV pool is small, so that it is all in use before memory is compared.
SECONDS_OF_SOAK ?= 600
SOAK = python3 tests/clients/soak.py URL --seconds $(SECONDS_OF_SOAK) --pid PID
soak: model
	LOCKSTEP_NUM_BLOCKS=512 tests/clients/run.sh $(MODEL) $(SOAK)

# The same with a tiny model, so that what is loaded is the server and not the arithmetic.
soak-tiny: build
	cargo run --release -q -p lockstep --example tiny_model -- $(CACHE)/tiny.gguf
	LOCKSTEP_NUM_BLOCKS=512 LOCKSTEP_MAX_WAITING=500 tests/clients/run.sh $(CACHE)/tiny.gguf $(SOAK)

# The seeded mutations of requests, templates and model files, for longer than the tests have them.
ROUNDS ?= 200000
fuzz:
	LOCKSTEP_FUZZ_ROUNDS=$(ROUNDS) cargo test --release -p lockstep --lib -- chat::fuzz
	QUICKCHECK_TESTS=$(ROUNDS) cargo test --release -p lockstep --lib -- gguf::tests::no_damage
	LOCKSTEP_FUZZ_ROUNDS=$(ROUNDS) cargo test --release -p lockstep-tests -- http::fuzz::mutated_bodies

verify-fmt:
	cargo fmt --all --check

# Proves the CUDA kernels in an interpreter and with NVIDIA's assemblers; nothing of it needs a GPU.
verify-test-cuda:
	kernels/verify.sh

verify-clippy:
	cargo clippy --release --workspace --all-targets -- -D warnings
	cargo clippy --release -p lockstep --no-default-features -- -D warnings

clean:
	cargo clean
