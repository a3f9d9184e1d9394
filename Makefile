# SPDX-License-Identifier: Apache-2.0

# CI runs these targets and no others, so that what passes here passes there.

SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
# Most of these use every core there is.
.NOTPARALLEL:

GO ?= go
FUZZTIME ?= 30s
# Further flags for go test, such as -v or -run.
GOTESTFLAGS ?=
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
# Without the tracing pages of gRPC, which a library brings and nothing serves, the linker can leave out methods that are never called:
# a quarter of the program, and of the memory that its code takes.
TAGS = grpcnotrace
# Test programs do not have the path of the checkout in them, so that a new checkout finds in Go's caches what another has compiled,
# and which tests have passed.
TESTBUILDFLAGS = -race -trimpath
# With the race detector, every program would sleep for a second before it exits.
export GORACE ?= atexit_sleep_ms=0
# What is linked without debugging information (-s -w) is compiled without it, too, which is quicker.
GCFLAGS = all=-dwarf=false
LDFLAGS = -s -w -X github.com/heirloom-dev/heirloom/pkg/version.version=$(VERSION)

# programs(SETS): exports where the helper programs of these sets are, and brings them first where need be.
programs = programs="$$(test/tools/build.sh --env $(1))"; eval "$$programs"

# Their verdict depends on programs that the test cache does not see, hence -count=1; one package at a time, hence -p, once
# all of them are compiled, by go list: go test would also link them, and link them again to run them. The API servers of tests
# live for minutes and build much that stays, so there is little for a garbage collector to find: GOGC is theirs, too.
# cluster-test(PACKAGES,FLAGS): runs these tests.
cluster-test = $(GO) list $(TESTBUILDFLAGS) -test -export $(1) >/dev/null; \
	GOGC=300 test/tools/account.sh $(GO) test $(TESTBUILDFLAGS) -count=1 -p=1 -timeout=60m $(2) $(GOTESTFLAGS) $(1)

# Packages whose tests need nothing but Go. Those of pkg/resync take longest, because they wait: they begin first.
unit = $(call packages,pkg/resync pkg cmd webhooks certs test/rules test/lockup)

# Those of them that start no goroutine. The race detector makes their random cases several times slower; RACE= leaves it out of them.
RACE ?= all
serial = $(call packages,pkg/inherit pkg/managedfields pkg/taint pkg/workload/policy)

# Go package patterns for those of these directories that exist.
packages = $(patsubst %,./%/...,$(wildcard $(1)))

##@ General

.PHONY: help
help: ## Show this help.
	@awk 'BEGIN { FS = ":.*## " } \
		/^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z0-9-]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: build
build: bin/kubectl_complete-heirloom ## Build bin/heirloom and bin/kubectl-heirloom (VERSION is what git describe says).
	CGO_ENABLED=0 $(GO) build -tags $(TAGS) -trimpath -gcflags '$(GCFLAGS)' -ldflags '$(LDFLAGS)' -o bin/ ./cmd/heirloom ./cmd/kubectl-heirloom

bin/kubectl_complete-heirloom: cmd/kubectl-heirloom/kubectl_complete-heirloom
	@mkdir -p $(@D)
	install -m 755 $< $@

.PHONY: demo
demo: build ## Show Heirloom at work on a local control plane (KEEP=1: leave it running until Ctrl-C).
	@# Compiled like the program, so that both share what they have in common.
	@$(call programs,controlplane tools); \
		CGO_ENABLED=0 $(GO) run -trimpath -gcflags '$(GCFLAGS)' -ldflags '-s -w' ./test/demo $(if $(filter 1,$(KEEP)),--keep)

.PHONY: clean
clean: ## Remove bin/ and dist/. Helper programs stay in the user's cache directory, under heirloom/.
	rm -rf bin dist

##@ Test

.PHONY: test
test: build test-programs ## Run the tests of every part, and one walk from the chart to the Node.
	@test/tools/account.sh $(MAKE) --no-print-directory test-unit test-monitoring test-beside-integration

.PHONY: test-all
test-all: build test-programs ## Run every test: also all of test-e2e, test-bench, test-release, test-site and test-cluster.
	@test/tools/account.sh $(MAKE) --no-print-directory test-beside-cluster test-integration-rest test-beside-e2e

# What runs side by side prints nothing before it has ended. So its programs are built before, where you see how.
.PHONY: test-programs
test-programs:
	@$(call programs,monitoring controlplane tools helm cluster-api)

# The first takes longest; the others run meanwhile, one after the other. They share nothing but the programs. The last minutes of
# test-e2e are waiting: beside them is what only computes.
.PHONY: test-beside-integration test-beside-cluster test-beside-e2e
test-beside-integration: beside = test-integration-rest test-conformance test-chart test-walk
test-beside-integration: export SHORT = -short
test-beside-cluster: beside = test-cluster test-conformance test-chart test-monitoring
test-beside-e2e: beside = test-e2e test-bench test-release test-site test-unit
test-beside-integration test-beside-cluster test-beside-e2e:
	@echo "$(firstword $(beside)) runs beside $(wordlist 2,9,$(beside)): what each prints follows once it has ended"
	@$(MAKE) --no-print-directory --file=test/tools/beside.mk --jobs=2 --output-sync=recurse $(beside)

.PHONY: test-unit
test-unit: ## Run the tests that need nothing but Go (RACE=: no race detector where no goroutine is started).
	@# Those that are parallel mostly wait, and so do some packages, hence -p.
ifeq ($(RACE),all)
	GOGC=300 $(GO) test $(TESTBUILDFLAGS) -p=4 -parallel=4 $(GOTESTFLAGS) $(unit)
else
	@# Side by side: each ends with what only one core can do.
	@export GOGC=300; $(GO) test -trimpath $(GOTESTFLAGS) $(serial) & serial=$$!; \
		$(GO) test $(TESTBUILDFLAGS) -p=4 -parallel=4 $(GOTESTFLAGS) $$($(GO) list $(unit) | grep -vxF "$$($(GO) list $(serial))") || race=$$?; \
		wait "$$serial"; exit "$${race-0}"
endif
	$(GO) -C test/tools/release test -trimpath $(GOTESTFLAGS) ./...
	@# -count=1: the test cache sees neither a file that is gone nor one of another module.
	$(GO) -C test/tools/bench test -count=1 $(GOTESTFLAGS) ./...
	$(GO) -C test/tools/site test -count=1 $(GOTESTFLAGS) ./links

.PHONY: test-monitoring
test-monitoring: ## Run the tests of alerts and dashboard, with Prometheus' own parser and promtool.
	@$(call programs,monitoring); promtool="$$HEIRLOOM_MONITORING/promtool"; \
		"$$promtool" check rules --lint=all --lint-fatal deploy/monitoring/alerts.yaml; \
		"$$promtool" test rules deploy/monitoring/alerts_test.yaml
	$(GO) -C test/tools/prometheus test -count=1 $(GOTESTFLAGS) ./...

.PHONY: test-gitops
test-gitops: build ## Run the tests beside Argo CD and Flux, with their own code (a first run compiles Argo CD, about 5 min).
	@$(call programs,controlplane); $(GO) -C test/tools/gitops test -count=1 -timeout=20m $(GOTESTFLAGS) ./...

# TestConformance takes as long as half of the other integration tests, and has its own API servers, so it can run beside something else.
conformance = '^TestConformance$$'

# integration-test(DIRECTORIES,FLAGS): runs these tests. Much of such a test is waiting, hence -parallel.
integration-test = $(call programs,controlplane tools helm); $(call cluster-test,$(call packages,$(1)),-parallel=4 $(2))

.PHONY: test-integration test-chart test-integration-rest
test-integration: build ## Run the tests against a real API server: test-chart, test-conformance and all others.
	@$(call integration-test,test/controlplane test/chart test/integration)
test-chart: build ## Run that part of test-integration which is about the chart, and about starting API servers.
	@$(call integration-test,test/controlplane test/chart)
test-integration-rest: build
	@$(call integration-test,test/integration,-skip $(conformance))

.PHONY: test-conformance
test-conformance: build ## Run that part of test-integration which holds Heirloom to the table of rules (SHORT=-short: beside the newest Cluster API alone).
	@# Two releases at a time: the cache mutation detector of its programs takes the more CPU the longer they run.
	@$(call integration-test,test/integration,-parallel=2 $(SHORT) -run $(conformance))

.PHONY: test-release
test-release: ## Build a release twice, compare both, and push it to a registry of the test.
	@$(call programs,helm); $(call cluster-test,./test/release/)

# The packages that have any; those of cmd and test/bench/scenes take minutes.
benchmarks = $(addprefix ./,$(sort $(dir $(shell grep -rlE --include='*_test.go' '^func Benchmark' pkg webhooks test/bench/*_test.go))))

.PHONY: test-bench
test-bench: build ## Run each quick benchmark once: one that fails measures nothing.
	@$(call programs,controlplane tools); \
		$(call cluster-test,$(benchmarks),-run '^$$' -bench . -benchtime 1x)

.PHONY: test-walk
test-walk: build ## Walk from the chart to the Node once, with real kubelets and Cluster API's core manager.
	@$(call programs,controlplane tools cluster-api); $(call cluster-test,./test/e2e/,-run '^TestWalk$$')

.PHONY: test-e2e
test-e2e: build ## Run the tests of the built programs, from the chart to the Node.
	@# More than two at a time would need more inotify instances than Linux gives a user (128), and starve each other.
	@$(call programs,controlplane tools helm cluster-api); $(call cluster-test,./test/e2e/...,-parallel=2)

# Programs and image of the tests in a cluster. Where there can be none, prepare.sh says why, and they are skipped.
cluster-programs = $(call programs,controlplane tools helm); \
	if test/cluster/prepare.sh; then \
		$(MAKE) --no-print-directory build; \
		$(MAKE) --no-print-directory image VERSION='$(VERSION)'; \
		$(GO) -C test/tools/image tool -n crane >/dev/null; \
		$(GO) -C test/tools/cert-manager build -trimpath -o '$(CURDIR)/bin/cert-manager' .; \
		$(call programs,node); \
		export HEIRLOOM_IMAGE="$(CURDIR)/dist/heirloom-$(VERSION)-linux-$$($(GO) env GOHOSTARCH).tar"; \
	fi

.PHONY: test-cluster
test-cluster: ## Run the tests of the image and the chart in a real cluster of one Node (Linux, root; else they are skipped).
	@$(cluster-programs); $(call cluster-test,./test/cluster/...,-v)

.PHONY: test-site
test-site: ## Test the site of the documentation in a headless Chromium (installed with apt-get as root; else some are skipped).
	@test/tools/site/prepare.sh || true
	@$(MAKE) --no-print-directory site SITE='$(CURDIR)/dist/site'
	HEIRLOOM_SITE_DIR='$(CURDIR)/dist/site' $(GO) -C test/tools/site test -count=1 -timeout=15m $(GOTESTFLAGS) ./browser

.PHONY: test-versions
test-versions: build ## Run the integration tests on the oldest and the newest Kubernetes, and on mixtures (VERSIONS=oldest:newest).
	@$(call programs,tools helm cluster-api); test/tools/account.sh test/tools/versions.sh $(GOTESTFLAGS) $(VERSIONS)

.PHONY: test-forward
test-forward: ## Build with newer Kubernetes libraries than go.mod has, and run the unit tests (PRERELEASES=1: pre-releases too).
	test/tools/forward.sh $(if $(filter 1,$(PRERELEASES)),--prereleases) $(unit)

# What a package's tests need is what its directory says. Tests that are skipped would pass twenty times, too.
flaky-programs = $(if $(filter ./test/cluster%,$(PKG)),test/cluster/prepare.sh; $(cluster-programs);,$(if $(filter ./test/%,$(PKG)),$(call programs,controlplane tools helm cluster-api);))

.PHONY: flaky
flaky: build ## Run the tests of PKG N (20) times beside busy loops; RUN is a regular expression of tests.
	@[[ -n '$(PKG)' ]] || { echo "say which package: make flaky PKG=./pkg/resync [N=20] [RUN=TestName]" >&2; exit 1; }
	@$(flaky-programs) test/tools/flaky.sh '$(PKG)' '$(or $(N),20)' $(if $(RUN),-test.run='$(value RUN)')

# A run for the documentation. For a quick one: make bench SIZES=50 MACHINES=100 QUIET=5s COUNT=1.
COUNT ?= 3
BENCHTIME ?= 1s
SIZES ?= 50 200 500
MACHINES ?= 500 1000 2000 10000
QUIET ?= 60s
# Quartiles of fewer results say nothing, so the page is left as it is.
AT_LEAST ?= 3

.PHONY: bench
bench: build ## Run the benchmarks, print their medians and quartiles, and draw docs/performance (RUN, COUNT, SIZES, MACHINES, QUIET, PROFILES).
	@$(call programs,controlplane tools cluster-api); \
		export RUN='$(or $(value RUN),.)' COUNT='$(COUNT)' BENCHTIME='$(BENCHTIME)'; \
		export BENCH_SIZES='$(SIZES)' BENCH_MACHINES='$(MACHINES)' BENCH_QUIET='$(QUIET)' BENCH_PROFILES='$(abspath $(PROFILES))'; \
		$(if $(PROFILES),mkdir -p '$(PROFILES)';) \
		export BENCH_FEW=100 BENCH_REQUESTS=2000; \
		test/tools/bench.sh dist/bench.txt $(wildcard cmd pkg webhooks test/bench)
	@$(MAKE) --no-print-directory bench-report

.PHONY: bench-report
bench-report: ## Print and draw what the last `make bench` left in dist/bench.txt (AT_LEAST: results a chart needs, 3).
	@$(GO) -C test/tools/bench run . -input '$(CURDIR)/dist/bench.txt' -page '$(CURDIR)/docs/performance/README.md' -at-least '$(AT_LEAST)'

.PHONY: fuzz
fuzz: ## Run each fuzz target for FUZZTIME (30s).
	@grep -rHoE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' $(wildcard cmd pkg webhooks certs) | \
	while IFS=: read -r file declaration; do \
		$(GO) test -run '^$$' -fuzz "^$${declaration#func }$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 20x "./$$(dirname "$$file")"; \
	done

##@ Check

.PHONY: generate
generate: ## Regenerate all generated files.
	@$(call programs,dev); "$$HEIRLOOM_DEV/controller-gen" object paths=./pkg/...
	$(GO) generate ./...
	@# Helm reads nothing outside of the chart.
	mkdir -p deploy/chart/heirloom/files
	cp deploy/monitoring/alerts.yaml deploy/monitoring/dashboard.json deploy/chart/heirloom/files/
	@# It says what is wrong, and goes on: whatever it says is an error.
	@$(call programs,dev); \
	said="$$("$$HEIRLOOM_DEV/helm-docs" --chart-search-root=deploy/chart --sort-values-order=file --log-level=warning 2>&1)" && \
		[[ -z $$said ]] || { echo "$$said" >&2; exit 1; }
	$(GO) run ./test/chart/schema deploy/chart/heirloom

.PHONY: update-docs
update-docs: build ## Write what the plugin prints in its test world into README.md and docs/kubectl.md.
	@$(call programs,controlplane tools helm); \
		HEIRLOOM_UPDATE_DOCS=1 $(GO) test -count=1 -run '^TestKubectl$$/^docs$$' ./test/integration/

SITE ?= $(CURDIR)/dist/site

.PHONY: site
site: ## Build the site of the documentation, with every release, into dist/site (SITE; SERVE=1: serve it while you write).
	@test/tools/site.sh $(if $(filter 1,$(SERVE)),--serve,'$(SITE)')

.PHONY: screenshots
screenshots: build ## Run the demo, and draw docs/images/demo.svg from what it prints.
	@$(call programs,controlplane tools freeze); \
		HEIRLOOM_UPDATE_DOCS=1 $(GO) test -count=1 -run '^TestDemo$$' ./test/e2e/

.PHONY: lint
lint: ## Run golangci-lint, which also enforces the import rules.
	@$(call programs,lint); "$$HEIRLOOM_LINT/golangci-lint" run

.PHONY: verify
verify: ## Run every check that is not a test: generated files, format, lint, licences, chart, modules, vulnerabilities.
	@test/tools/verify.sh

##@ Release (into dist/, or DIST; VERSION is the chart's appVersion)

DIST ?= $(CURDIR)/dist

# What one commit makes is the same on every machine: its time is the time of all that is made.
image components binaries release: export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
released = $(shell awk '$$1 == "appVersion:" { print $$2 }' deploy/chart/heirloom/Chart.yaml)
image components binaries notes release check-release push-image push test-cluster: VERSION = $(released)
revision = $(shell git rev-parse HEAD 2>/dev/null || echo unknown)$(shell git diff --quiet HEAD 2>/dev/null || echo -dirty)

.PHONY: image
image: ## Build the container image, for each architecture and as one OCI layout, with SBOMs.
	$(GO) -C test/tools/image run . --source '$(CURDIR)' --out '$(DIST)' \
		--version '$(VERSION)' --revision '$(revision)' --created '$(SOURCE_DATE_EPOCH)'

.PHONY: components
components: ## Package the chart, and render addon-components.yaml and metadata.yaml for clusterctl from it.
	@mkdir -p '$(DIST)'
	$(call programs,helm); helm="$$HEIRLOOM_HELM/helm"; \
	"$$helm" package deploy/chart/heirloom --destination '$(DIST)' --version '$(VERSION:v%=%)' --app-version '$(VERSION)'; \
	"$$helm" template heirloom '$(DIST)/heirloom-$(VERSION:v%=%).tgz' --namespace heirloom-system --no-hooks \
		--values deploy/clusterctl/values.yaml --skip-schema-validation >'$(DIST)/addon-components.yaml'
	cp deploy/clusterctl/metadata.yaml '$(DIST)/'

PLATFORMS ?= linux-amd64 linux-arm64 darwin-amd64 darwin-arm64 windows-amd64 windows-arm64

# release-files(COMMAND,ARGUMENTS): what is neither image nor chart.
release-files = $(GO) -C test/tools/release run . $(1) --source '$(CURDIR)' --out '$(DIST)' \
	--version '$(VERSION)' $(2)

.PHONY: binaries
binaries: ## Build the programs and their SBOMs for PLATFORMS: Heirloom for Linux; archives of the kubectl plugin, and krew's manifest.
	for platform in $(PLATFORMS); do \
		programs=./cmd/kubectl-heirloom; \
		[[ $$platform != linux-* ]] || programs+=' ./cmd/heirloom'; \
		CGO_ENABLED=0 GOOS="$${platform%-*}" GOARCH="$${platform#*-}" $(GO) build -tags $(TAGS) -trimpath -buildvcs=false -gcflags '$(GCFLAGS)' -ldflags '$(LDFLAGS)' \
			-o "bin/$$platform/" $$programs; \
	done
	$(call release-files,package,--created '$(SOURCE_DATE_EPOCH)' $(PLATFORMS))

.PHONY: notes
notes: ## Cut the release notes of VERSION out of the changelog.
	@mkdir -p '$(DIST)'
	$(call release-files,notes)

.PHONY: release
release: ## Build all that a release consists of, from scratch.
	@if [[ '$(DIST)' == '$(CURDIR)/dist' ]]; then rm -rf dist; fi
	@$(MAKE) --no-print-directory image components binaries notes VERSION='$(VERSION)'
	cd '$(DIST)' && sha256sum -- * >SHA256SUMS

.PHONY: check-release
check-release: ## Check that the sources may be tagged with VERSION.
	$(call release-files,check)

REGISTRY ?= ghcr.io/heirloom-dev
# Further flags for helm push, such as --plain-http.
PUSHFLAGS ?=

.PHONY: push-image
push-image: ## Push the image out of DIST to REGISTRY, with your login to it; the lines printed are its name and digest.
	@image='$(REGISTRY)/heirloom'; \
	layout=$$(mktemp -d); trap 'rm -rf "$$layout"' EXIT; \
	tar -xf '$(DIST)/heirloom-$(VERSION)-oci.tar' -C "$$layout"; \
	$(GO) -C test/tools/image tool crane push "$$layout" "$$image:$(VERSION)" | sed 's/.*@/image-digest=/'; \
	echo "image=$$image"

.PHONY: push
push: push-image ## Push image and chart out of DIST to REGISTRY; the lines printed are their names and digests.
	@$(call programs,helm); \
	chart='$(REGISTRY)/charts/heirloom'; \
	"$$HEIRLOOM_HELM/helm" push '$(DIST)/heirloom-$(VERSION:v%=%).tgz' "oci://$${chart%/*}" $(PUSHFLAGS) 2>&1 | \
		tee /dev/stderr | sed -n 's/^Digest: /chart-digest=/p'; \
	echo "chart=$$chart"

##@ Helper programs (installed once, into the user's cache directory)

.PHONY: controlplane
controlplane: ## Install etcd and kube-apiserver, or use KUBEBUILDER_ASSETS; the last line printed is their directory.
	@test/tools/build.sh controlplane

.PHONY: tools
tools: ## Install kubectl and kubemark; the last line printed is their directory.
	@test/tools/build.sh tools

.PHONY: programs
programs: ## Install every helper program, so that no test has to wait for one; the lines printed are their directories.
	@test/tools/build.sh controlplane tools node helm cluster-api lint dev monitoring site
