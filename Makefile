# SPDX-License-Identifier: Apache-2.0

# What everybody needs. What is rarely needed is in hack/; each script there says with --help what it does.

SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
# Most of these use every core there is.
.NOTPARALLEL:

# Further flags for go test, such as -run=TestRights.
export GOTESTFLAGS ?=

# Flags of hack/build.sh: what is compiled like the program shares with it what they have in common.
COMPILED = -tags grpcnotrace -trimpath -gcflags all=-dwarf=false
LIKE_THE_PROGRAM = $(COMPILED) -ldflags '-s -w'

# programs(SETS): exports where the helper programs of these sets are, and brings them first where need be.
programs = programs="$$(hack/tools/build.sh --env $(1))"; eval "$$programs"

.PHONY: help
help: ## Show this help.
	@awk 'BEGIN { FS = ":.*## " } /^[a-z0-9-]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: build
build: ## Build bin/heirloom and bin/kubectl-heirloom (VERSION is what git describe says).
	@hack/build.sh bin
	@install -m 755 cmd/kubectl-heirloom/kubectl_complete-heirloom bin/

.PHONY: check
check: ## Vet the program and run its unit tests: seconds, once compiled (no race detector, no helper programs).
	@CGO_ENABLED=0 go vet $(COMPILED) ./pkg/... ./cmd/... ./webhooks/... ./certs/...
	@CGO_ENABLED=0 GOGC=300 go test $(COMPILED) $(GOTESTFLAGS) ./pkg/... ./cmd/... ./webhooks/... ./certs/...

.PHONY: demo
demo: build ## Show Heirloom at work on a local control plane (KEEP=1: leave it running until Ctrl-C).
	@$(call programs,controlplane tools); CGO_ENABLED=0 go run $(LIKE_THE_PROGRAM) ./test/demo $(if $(filter 1,$(KEEP)),--keep)

.PHONY: fleet
fleet: build ## Measure changes on a fleet of Cluster API's own managers in memory, alone and with Heirloom (CLUSTERS=3 WORKERS=3, ALONE=1, KEEP=1).
	@$(call programs,controlplane cluster-api capd); CGO_ENABLED=0 go run $(LIKE_THE_PROGRAM) ./test/clusterapi/fleet \
		--clusters=$(or $(CLUSTERS),3) --workers=$(or $(WORKERS),3) $(if $(filter 1,$(ALONE)),--alone) $(if $(filter 1,$(KEEP)),--keep)

.PHONY: test test-all test-unit test-integration test-e2e test-cluster
test: ## Run the tests of every part, and one walk from the chart to the Node.
	@hack/test.sh integration unit walk
test-all: ## Run every test that CI runs.
	@hack/test.sh all
test-unit: ## Run the tests that need nothing but Go, with the race detector.
	@hack/test.sh unit
test-integration: ## Run the tests against a real API server.
	@hack/test.sh integration
test-e2e: ## Run the tests of the built programs, from the chart to the Node, and of a release.
	@hack/test.sh e2e
test-cluster: ## Run the tests of the image and the chart in a real cluster of one Node (Linux, root; else they are skipped).
	@hack/test.sh cluster

.PHONY: sim
sim: ## Play SEEDS (1000) simulated worlds, from SEED (1) on; SEED alone plays that one, and prints its writes (hack/sim.sh --help).
	@hack/sim.sh

.PHONY: bench
bench: build ## Run the benchmarks, and print their ratios (RUN, COUNT, MACHINES, SCENARIO: hack/bench.sh --help).
	@hack/bench.sh

.PHONY: generate
generate: ## Regenerate all generated files.
	go generate ./...
	@# Helm reads nothing outside of the chart.
	mkdir -p deploy/chart/heirloom/files
	cp deploy/monitoring/alerts.yaml deploy/monitoring/dashboard.json deploy/chart/heirloom/files/
	@# It says what is wrong, and goes on: whatever it says is an error.
	@$(call programs,dev); \
	said="$$("$$HEIRLOOM_DEV/helm-docs" --chart-search-root=deploy/chart --sort-values-order=file --log-level=warning 2>&1)" && \
		[[ -z $$said ]] || { echo "$$said" >&2; exit 1; }
	go run ./test/chart/schema deploy/chart/heirloom

.PHONY: lint
lint: ## Run golangci-lint, which also enforces the import rules.
	@$(call programs,lint); "$$HEIRLOOM_LINT/golangci-lint" run --allow-serial-runners

.PHONY: verify
verify: ## Run every check that is not a test: generated files, format, lint, licences, chart, modules, vulnerabilities.
	@hack/verify.sh

.PHONY: release
release: ## Build all that a release consists of into dist/ (VERSION, DIST; parts: hack/release.sh --help).
	@hack/release.sh

.PHONY: site
site: ## Build the site of the documentation, with every release, into dist/site (SERVE=1: serve it while you write).
	@hack/site.sh $(if $(filter 1,$(SERVE)),--serve,dist/site)

.PHONY: controlplane
controlplane: ## Install etcd and kube-apiserver, or use KUBEBUILDER_ASSETS; the last line printed is their directory.
	@hack/tools/build.sh controlplane

.PHONY: clean
clean: ## Remove bin/ and dist/. Helper programs stay in the user's cache directory, under heirloom/.
	rm -rf bin dist
