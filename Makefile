# Everything a person or CI does with this repository. Each target says what it does while it does it.
SHELL := /usr/bin/env bash

.DEFAULT_GOAL := help
.PHONY: help demo build test soak fuzz bench lint docs

help: ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

demo: ## build Weir, run the main job with kcat on real-shaped orders, leave the broker running
	@scripts/demo

build: ## the weir binary (release), after installing what the build needs
	@scripts/build

test: ## every test: the crates' own, then real clients and engines against a real broker
	@scripts/test

soak: ## what takes longer: the clients' tests in their longer forms, 200 kill -9 cycles
	@scripts/soak

fuzz: ## fuzz what strangers send, FUZZ_SECONDS (3600) over all targets; a short run is part of `make test`
	@scripts/fuzz

bench: ## Apache Kafka 4.2 beside Weir in one run: CPU-seconds per GB, MB/s, goals (by hand; see bench/README.md)
	@scripts/bench

lint: ## rustfmt, clippy, docs that no longer match the code
	@scripts/lint

docs: ## write the generated parts of the docs again (docs/configuration.md, APIs and differences in COMPAT.md)
	@scripts/configuration-docs
	@scripts/compat-table
