# Every target sets up what it needs and can be run first, from a fresh clone.

CARGO ?= cargo
export PYTHONDONTWRITEBYTECODE = 1

# Most tests wait for processes and disks: twice as many as cores keep the processor busy.
CORES := $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)
export RUST_TEST_THREADS ?= $(shell expr 2 \* $(CORES))

# Homebrew keeps these out of the way of the system's own.
ifeq ($(shell uname),Darwin)
BREW := $(shell brew --prefix 2>/dev/null)
export PKG_CONFIG_PATH := $(BREW)/opt/libxml2/lib/pkgconfig:$(PKG_CONFIG_PATH)
ifneq ($(wildcard $(BREW)/opt/llvm/lib/libclang.dylib),)
export LIBCLANG_PATH ?= $(BREW)/opt/llvm/lib
endif
endif

# Begins the search for `python3` with the link that setup has made.
WITH_PYTHON = PATH="$(CURDIR)/target/python:$$PATH"

.PHONY: help needs setup vocabularies sdks nats browser build install demo check test conformance torture old-servers bench bench-large lint fmt doc

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-13s%s\n", $$1, $$2 }' $(MAKEFILE_LIST)

needs:
	@.ci/setup

setup: needs vocabularies ## install what the build and the tests need, or name what is missing

vocabularies: needs ## download schemas of other projects, for one test
	@.ci/vocabularies

sdks: ## install the Python and TypeScript packages that some tests use
	@.ci/sdks
	@.ci/natspy
	@.ci/setup node
	@.ci/typescript

nats: ## install the NATS server that some tests start
	@.ci/nats

browser: ## install what the tests of the web view need to control Chromium, if there is one
	@.ci/browser

build: needs ## build the command and the listeners
	@$(CARGO) build --quiet --locked --workspace

# One directory of build results for all three, so that most of what they share is compiled once:
# a package is compiled again where the next one chooses other features of what it depends on.
install: needs ## install organism and its listeners into ~/.cargo/bin
	@for package in . listeners/code-search listeners/workspace; do \
		$(CARGO) install --locked --path $$package || exit 1; done

demo: needs ## show agents at work on this source tree, live
	@echo "building (about three minutes the first time) ..." >&2
	@$(CARGO) build --locked --workspace
	@./target/debug/organism demo

# One cargo selection each, the same as elsewhere, so that nothing is compiled twice.
check: needs ## run format, clippy, unit tests and the repository's own rules: before each commit
	@$(CARGO) fmt --all --check
	@$(CARGO) clippy --quiet --locked --workspace --all-targets -- -D warnings
	@$(CARGO) test --quiet --locked --workspace --lib
	@$(CARGO) test --quiet --locked --workspace --test tidy

test: setup sdks nats browser ## run all tests, in debug
	@$(WITH_PYTHON) .ci/test

conformance: needs sdks nats ## run the tests that have a journal once more, on JetStream
	@$(WITH_PYTHON) .ci/conformance

# What there is to make larger: SEEDS of the simulations, FUZZ seconds for each target, KILLS of each
# campaign (which has its own number otherwise), ROUNDS of a cluster. What each campaign went through ends up in
# target/torture.txt, a line each.
torture: setup sdks nats browser ## run the same tests with larger numbers, such as SEEDS=10000
	@for version in $(OLD_SERVERS); do .ci/nats $$version || true; done
	@rm -f target/torture.txt
	@export ORGANISM_TORTURE=1 ORGANISM_CAMPAIGNS="$(CURDIR)/target/torture.txt"; \
		SIMULATION_SEEDS=$(or $(SEEDS),10000) FUZZ_SECONDS=$(or $(FUZZ),60) \
		ROUNDS=$(or $(ROUNDS),100) $(WITH_PYTHON) $(CARGO) test --locked --workspace --no-fail-fast; \
		status=$$?; $(MAKE) --no-print-directory --keep-going conformance old-servers || status=1; \
		echo; sort target/torture.txt; exit $$status

# The newest server is the one of `make test`.
OLD_SERVERS = 2.9.10 2.12.8
old-servers: needs sdks nats ## run the conformance tests, and the journal's tests, on older NATS servers
	@$(WITH_PYTHON) .ci/old-servers $(OLD_SERVERS)

bench: needs nats ## measure how fast it is on this machine
	$(CARGO) bench --locked --package organism --bench bench

bench-large: needs ## measure queries on 10,000,000 messages; states the disk that it needs
	BENCH_MESSAGES=10000000 $(CARGO) bench --locked --package organism --bench bench -- large

lint: needs ## run clippy; warnings are errors
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings

fmt: ## format the Rust code
	$(CARGO) fmt --all

doc: needs ## build the library's documentation; warnings are errors
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --no-deps --lib
