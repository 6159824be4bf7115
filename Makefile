# Needs GNU make, Go and a C compiler (for the race detector).

GO          ?= go
FUZZTIME    ?= 30s
SOAKTIME    ?= 10m
ROUNDS      ?= 21
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.8.0
GREMLINS    := github.com/go-gremlins/gremlins/cmd/gremlins@v0.6.0
APIDIFF     := golang.org/x/exp/cmd/apidiff@v0.0.0-20260908205506-85c1c2202aba

.DEFAULT_GOAL := help
.PHONY: help test race vet lint vuln fuzz soak nightly mutate bench bench-peers bench-overhead sim figures suites examples api release ci

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-15s%s\n", $$1, $$2 }' $(MAKEFILE_LIST)

test: ## run the tests
	$(GO) test ./...

race: ## run the tests in random order, under the race detector
	$(GO) test -race -shuffle=on ./...

vet: ## run go vet
	$(GO) vet ./...

lint: ## run staticcheck
	$(GO) run $(STATICCHECK) ./...

vuln: ## look for known vulnerabilities, in each module
	@set -e; for mod in $$(find . -name go.mod); do \
		echo "== $$(dirname $$mod)"; \
		(cd $$(dirname $$mod) && $(GO) run $(GOVULNCHECK) ./...); \
	done

fuzz: ## run each fuzz target for FUZZTIME (30s)
	@set -e; for pkg in $$($(GO) list ./...); do \
		targets=$$($(GO) test -list '^Fuzz' $$pkg); \
		for target in $$(echo "$$targets" | grep '^Fuzz' || true); do \
			echo "== $$pkg $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 5x $$pkg; \
		done; \
	done

soak: ## send requests through random faults for SOAKTIME (10m), over HTTP/1, HTTP/2 and HTTP/3
	cd test/protocols && $(GO) run -race ./soak -for $(SOAKTIME)

figures: ## run all tests of the simulations, and the commands in docs/simulation-tables.md, whose figures they compare
	cd test/simulation && $(GO) test -count=1 -timeout 60m ./...

nightly: soak fuzz suites figures ## run what takes too long for each merge

mutate: ## run mutation tests, for an hour or two
	bash .ci/mutate $(GREMLINS)

bench: ## run the benchmarks
	$(GO) test -run '^$$' -bench . -benchmem ./...

bench-peers: ## measure other libraries beside this one, ROUNDS (21) times, and write docs/benchmarks.md
	cd test/benchmarks && $(GO) test -count=1 -run '^TestReport$$' -timeout 90m -report "$$(cd ../../docs && pwd)" -rounds $(ROUNDS) .

bench-overhead: ## measure what the library adds to a request, in a minute
	cd test/benchmarks && $(GO) test -count=1 -run '^TestOverhead$$' -overhead -v .

sim: ## run the simulations at full size, and write docs/simulation.md and its tables; with SECTION, print that section alone
	cd test/simulation && $(GO) test -count=1 -v -run '^(TestReport|TestPicturesForThePersonOnCall)$$' -timeout 90m -report "$$(cd ../../docs && pwd)" -section "$(SECTION)" .

suites: ## run the test suites of other modules with the library in their path, for an hour
	cd test/suites && $(GO) run .

examples: ## run each example
	@set -e; for main in examples/*/main.go; do \
		example=$$(dirname $$main); \
		echo "== $$example"; \
		$(GO) run ./$$example; \
	done

# The worktree has the source of the last tag, which apidiff compares with this source.
api: ## compare the exported API with testdata/api.txt, and with the last tag
	$(GO) test -count=1 -run '^TestAPIIsAsListed$$' ./internal/test/docs
	@tag=$$(git describe --tags --match 'v*' --abbrev=0 2>/dev/null) || tag=; \
	if [ -z "$$tag" ]; then \
		echo "there is no tag yet"; \
		exit 0; \
	fi; \
	set -e; \
	tmp=$$(mktemp -d); \
	trap 'git worktree remove --force "$$tmp/old" 2>/dev/null || true; rm -rf "$$tmp"' EXIT; \
	git worktree add --quiet --detach "$$tmp/old" "$$tag"; \
	(cd "$$tmp/old" && $(GO) run $(APIDIFF) -w "$$tmp/old.api" .); \
	$(GO) run $(APIDIFF) -w "$$tmp/new.api" .; \
	changes=$$($(GO) run $(APIDIFF) "$$tmp/old.api" "$$tmp/new.api"); \
	if [ -z "$$changes" ]; then \
		echo "the exported API has not changed since $$tag"; \
	else \
		echo "the exported API since $$tag:"; \
		echo "$$changes"; \
	fi

release: api ## make the commits of release VERSION (v1.2.3) on a branch, and rehearse it; RELEASE.md has the rest
	@cd test/published && $(GO) run ./release $(VERSION) $(MODULES)

ci: ## run all that must pass before a merge
	bash .ci/run
