# Two commands on a fresh machine (Go, git, make): `make demo` and `make test`.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help build demo dev devcluster test test-main test-others matrix lint generate verify bench soak fuzz page screenshot image release reproducible clean force bin/tranche bin/demo

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
TOOL := go tool -modfile=go.tools.mod

# The embedded cluster can be each of these versions of Kubernetes. The default one is in bin,
# each older one in a folder of bin.
NEWEST := 1.36
OLDER := 1.34 1.35
KUBERNETES ?= $(NEWEST)
MATRIX ?= $(OLDER) $(NEWEST)
kubernetes_bin = bin$(patsubst %,/%,$(filter-out $(NEWEST),$(1)))
KUBERNETES_BIN := $(call kubernetes_bin,$(KUBERNETES))

ifneq ($(filter-out $(OLDER) $(NEWEST),$(KUBERNETES) $(MATRIX)),)
$(error The embedded cluster can be Kubernetes $(OLDER) or $(NEWEST), not $(filter-out $(OLDER) $(NEWEST),$(KUBERNETES) $(MATRIX)))
endif

# The version that the tests of upgrades begin with: a commit or, once there is one, the
# tag of the last release. The clone needs its history.
UPGRADE_FROM ?= 9f99a86
export UPGRADE_FROM

# One set of flags for every build, test and vet: the Go build cache keeps a library
# once for each set, so a second set would compile all of them again.
export CGO_ENABLED := 0
export GOFLAGS := $(strip $(shell go env GOFLAGS 2>/dev/null) -trimpath)

help: ## Show this list
	@grep -hE '^[a-z/]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z\/]+):.*## (.*)/\1\t\2/' | expand -t 14

build: bin/tranche bin/devcluster bin/kubectl bin/prometheus ## Build bin/tranche, bin/devcluster, bin/kubectl and bin/prometheus

devcluster: $(KUBERNETES_BIN)/devcluster $(KUBERNETES_BIN)/kubectl ## Build the embedded cluster of KUBERNETES: 1.34, 1.35 or 1.36, the default

demo: build devcluster bin/demo ## Release, approve and roll back on an embedded cluster, in under two minutes
	@PATH="$(CURDIR)/bin:$$PATH" bin/demo --cluster $(KUBERNETES_BIN)

dev: build devcluster bin/demo ## Bring up cluster, Git server and controller, and leave them running
	@PATH="$(CURDIR)/bin:$$PATH" bin/demo --cluster $(KUBERNETES_BIN) --stay

test: bin/devcluster bin/kubectl bin/prometheus ## Run all tests; those of a cluster against the embedded one
	.ci/in-memory $(MAKE) --no-print-directory -j 2 test-main test-others
	@$(PAGE_TOOLS) || echo "NOT RUN: the tests of the dashboard's page, which need Node, Chromium and 'make $(PAGE)/node_modules'"

# The packages begin in this order. The tests of rollout wait more than they work, so they run
# beside others and not alone at the end.
test-main:
	go test -p 3 -parallel 4 -timeout 90m -vet=off ./cmd/... ./gitsync ./gitsync/[a-l]*/ ./rollout ./... # make lint vets

# These wait more than they work, so they run beside the others.
test-others:
	go -C config/chart/charttest test -timeout 30m .
	go -C cmd/devcluster test -timeout 15m ./cluster ./gitserver ./traffic
	go -C cmd/release test -timeout 15m .

# The page of the dashboard. It is built and committed: Go alone builds and tests the rest.
PAGE := cmd/tranche/dashboard/web
CHROMIUM ?= /usr/bin/chromium
PAGE_TOOLS = command -v node >/dev/null && test -d $(PAGE)/node_modules && test -x $(CHROMIUM)

page: $(PAGE)/node_modules ## Build the page of the dashboard, with Node
	cd $(PAGE) && npm run --silent build

$(PAGE)/node_modules: $(PAGE)/package-lock.json
	cd $(PAGE) && npm ci --silent
	@touch $@

screenshot: bin/devcluster bin/kubectl $(PAGE)/node_modules ## Make docs/dashboard.png anew, with Chromium
	@pictures=$$(mktemp -d) && TRANCHE_PICTURES=$$pictures go test -count=1 -run TestDashboard_ShowsTheThreeGestures ./cmd/tranche && \
	cp $$pictures/release.png docs/dashboard.png && rm -r $$pictures

MATRIX_BINS := $(foreach version,$(MATRIX),$(call kubernetes_bin,$(version)))

matrix: build bin/demo $(MATRIX_BINS:%=%/devcluster) $(MATRIX_BINS:%=%/kubectl) ## Test on each version of Kubernetes (MATRIX=1.34 for one), and write the table of README.md
	go run ./cmd/matrix $(MATRIX_BINS)

# golangci-lint vets what it lints. A vet of its own goes through each dependency once more.
lint: ## gofmt, golangci-lint, go vet of cmd/devcluster, links of the docs, language and sizes
	@test -z "$$(gofmt -l cmd config docs gitsync plan rollout)" || { gofmt -l cmd config docs gitsync plan rollout; echo "run gofmt -w on these"; exit 1; }
	go -C cmd/devcluster vet ./...
	cd cmd/release && go tool -modfile=../../go.tools.mod golangci-lint run -c ../../.golangci.yml .
	cd config/chart/charttest && go tool -modfile=../../../go.tools.mod golangci-lint run -c ../../../.golangci.yml .
	$(TOOL) golangci-lint run ./...
	go test ./docs/...

generate: ## Generate deep copies, CRDs, docs/cli.md, docs/api.md, files of the chart and the table of README.md
	$(TOOL) controller-gen object paths=./plan/v1alpha1
	$(TOOL) controller-gen crd paths=./plan/v1alpha1 output:crd:dir=config/crd/bases
	go generate ./cmd/tranche
	go run ./docs/api
	go run ./config/chart/generate
	go run ./cmd/matrix -table

verify: generate ## Fail if generated files are not current
	@git diff --exit-code -- plan/v1alpha1 config/crd/bases config/chart docs/cli.md docs/api.md || { echo "generated files were not current: commit what 'make generate' has made"; exit 1; }
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory page && \
	test -z "$$(git status --porcelain -- $(PAGE)/dist)" || { echo "the built page was not current: commit what 'make page' has made"; exit 1; }; \
	else echo "NOT CHECKED: the built page, which needs Node"; fi

bench: bin/devcluster bin/kubectl ## Run the benchmarks
	go test -run '^$$' -bench . -timeout 4h ./...

# Each target for that long.
FUZZTIME ?= 1m

# Random releases against the adversary of rollout/engine, an hour of one core.
WALKS ?= 225000
# Random Git graphs of signed plans and approvals: without a cluster, where 10000 take
# about 40 minutes of one core, and on one.
GRAPHS ?= 10000
LIVE ?= 50
# Other sizes of releases, sources and repositories: SCALE='-releases 500 -sources 200 -failover 10 -repositories 20'
SCALE ?=

soak: bin/devcluster bin/kubectl ## Explore wide, take every fault at every write, five minutes of chaos: over two hours
	go test -v -run 'Explore|ChangeAtAnyMoment|Adversary' -timeout 4h ./rollout/engine -full -walks $(WALKS)
	go test -v -run 'TestFaultAtAnyWrite|TestChaos' -timeout 1h ./rollout -full
	go test -v -run TestPlanAdversary -timeout 2h ./gitsync/terms -graphs $(GRAPHS)
	go test -v -run TestLiveAdversary -timeout 2h ./gitsync -live $(LIVE)
	go test -run '^$$' -bench 'Failover|Scale|Repositories' -timeout 4h ./cmd/tranche $(SCALE)

# Go before 1.27 may fail a target at the end of its time, without a failing input:
# "context deadline exceeded" (go.dev/issue/75804). This is no failure.
fuzz: ## Run every fuzz target for FUZZTIME, 1m by default
	@set -o pipefail; log=$$(mktemp); trap 'rm -f "$$log"' EXIT; \
	grep -roE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' cmd gitsync plan rollout | sed 's,^\(.*\)/.*:func ,./\1 ,' | \
	while read -r package target; do \
	  echo "$$target in $$package"; \
	  go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$package" </dev/null 2>&1 | tee "$$log" || \
	    { grep -qx ' *context deadline exceeded' "$$log" && ! grep -q 'Failing input\|panic' "$$log"; } || exit 1; \
	done

# Where a release goes. IMAGE and DOWNLOAD_URL are the user's: no registry and no host is in here.
DIST ?= dist
IMAGE ?= registry.example.org/tranche
DOWNLOAD_URL ?= https://example.org/tranche/$(VERSION)
IMAGE_PLATFORMS := linux-amd64 linux-arm64
PLATFORMS := $(IMAGE_PLATFORMS) darwin-amd64 darwin-arm64
BUILD := --version $(VERSION) --revision $(shell git rev-parse HEAD 2>/dev/null) --time $(shell git log -1 --format=%cI 2>/dev/null || echo 1970-01-01T00:00:00Z)
HOST := $(shell go env GOHOSTOS)-$(shell go env GOHOSTARCH)

.PHONY: $(PLATFORMS:%=$(DIST)/bin/tranche-%)
$(PLATFORMS:%=$(DIST)/bin/tranche-%): $(DIST)/bin/tranche-%:
	@mkdir -p $(@D)
	GOOS=$(word 1,$(subst -, ,$*)) GOARCH=$(word 2,$(subst -, ,$*)) \
	go build -buildvcs=false -ldflags "-s -w -buildid= -X main.version=$(VERSION)" -o $@ ./cmd/tranche

image: bin/release $(IMAGE_PLATFORMS:%=$(DIST)/bin/tranche-%) ## Build the image for linux on amd64 and arm64, as an OCI layout: dist/image
	@bin/release image --out $(DIST)/image $(BUILD) $(IMAGE_PLATFORMS:%=$(DIST)/bin/tranche-%)

release: image $(PLATFORMS:%=$(DIST)/bin/tranche-%) ## Build all files of a release: dist/release
	@rm -rf $(DIST)/release $(DIST)/completions
	@mkdir -p $(DIST)/release $(DIST)/completions
	@for shell in bash fish zsh; do $(DIST)/bin/tranche-$(HOST) completion $$shell > $(DIST)/completions/tranche.$$shell || exit 1; done
	@$(DIST)/bin/tranche-$(HOST) install --image $(IMAGE):$(VERSION) > $(DIST)/release/install.yaml
	@bin/release chart --out $(DIST)/release --image $(IMAGE) $(BUILD) >/dev/null
	@cp $(DIST)/image.tar $(DIST)/release/tranche-$(VERSION)-image.tar
	@bin/release files --out $(DIST)/release --url $(DOWNLOAD_URL) $(BUILD) \
	  --with LICENSE,README.md,$(DIST)/completions/tranche.bash,$(DIST)/completions/tranche.fish,$(DIST)/completions/tranche.zsh \
	  $(PLATFORMS:%=$(DIST)/bin/tranche-%)
	@cat $(DIST)/release/SHA256SUMS

reproducible: ## Build the release twice, in two folders, and compare
	@$(MAKE) --no-print-directory release DIST=$(DIST)/first >/dev/null
	@$(MAKE) --no-print-directory release DIST=$(DIST)/second >/dev/null
	@diff -r $(DIST)/first $(DIST)/second && echo "both builds are equal"

bin/release: $(shell find cmd/release -type f ! -name '*_test.go')
	@mkdir -p bin
	go -C cmd/release build -buildvcs=false -o $(CURDIR)/$@ .

clean: ## Remove what was built, but the Go build cache
	rm -rf bin dist .dev

bin/tranche:
	@mkdir -p bin
	go build -ldflags "-X main.version=$(VERSION)" -o $@ ./cmd/tranche

bin/demo:
	@mkdir -p bin
	go build -o $@ ./cmd/demo

# kubectl refuses a server whose version it cannot parse, so the linker sets that of the module file.
kubernetes_version = $(shell go -C cmd/devcluster list -modfile=$(1) -m -f '{{.Version}}' k8s.io/kubernetes)
version_flags = $(foreach package,k8s.io/component-base/version k8s.io/client-go/pkg/version,\
  -X $(package).gitVersion=$(1) -X $(package).gitMajor=1 -X $(package).gitMinor=$(word 2,$(subst ., ,$(1))) \
  -X $(package).gitTreeState=clean -X $(package).gitCommit=)
# $(call build_kubernetes,module file,package)
define build_kubernetes
@mkdir -p $(@D)
go -C cmd/devcluster build -buildvcs=false -modfile=$(1) -ldflags "-s -w $(call version_flags,$(call kubernetes_version,$(1)))" -o $(CURDIR)/$@ $(2)
endef

KUBECTL_SOURCES := $(shell find cmd/devcluster/kubectl -type f)
DEVCLUSTER_SOURCES := $(shell find cmd/devcluster -type f ! -name '*_test.go' ! -name '*.mod' ! -name '*.sum')

# It starts in half the time that bin/devcluster takes, and the tests start it often.
# An earlier version made a link of it, which is never out of date.
bin/kubectl: $(KUBECTL_SOURCES) cmd/devcluster/go.mod $(shell find bin/kubectl -type l -printf force 2>/dev/null)
	@rm -f $@
	$(call build_kubernetes,go.mod,./kubectl/command)

bin/devcluster: $(DEVCLUSTER_SOURCES) cmd/devcluster/go.mod
	@echo "building the embedded cluster: the first build takes about ten minutes on two cores"
	$(call build_kubernetes,go.mod,.)

$(OLDER:%=bin/%/kubectl): bin/%/kubectl: $(KUBECTL_SOURCES) cmd/devcluster/go-%.mod
	$(call build_kubernetes,go-$*.mod,./kubectl/command)

$(OLDER:%=bin/%/devcluster): bin/%/devcluster: $(DEVCLUSTER_SOURCES) cmd/devcluster/go-%.mod
	@echo "building the embedded cluster of Kubernetes $*: the first build takes about ten minutes on two cores"
	@mkdir -p $(@D) && ln -sf ../prometheus $(@D)/prometheus # which it looks for beside itself
	$(call build_kubernetes,go-$*.mod,.)

# Prometheus itself, without its service discoveries: they are a third of its packages. It
# takes a minute on two cores. cmd/prometheus is a module of its own: it requires 240
# others, which devcluster would have to agree with for each version of Kubernetes.
bin/prometheus: cmd/prometheus/go.mod cmd/prometheus/go.sum
	@mkdir -p bin
	go -C cmd/prometheus build -buildvcs=false -tags remove_all_sd -ldflags "-s -w" -o $(CURDIR)/$@ github.com/prometheus/prometheus/cmd/prometheus
