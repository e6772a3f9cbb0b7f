# Everything that is done with this repository, each as one target; `make help` lists them.
#
# The tools are built from the Go module proxy, pinned by the modules below tools/. A Postgres server is started where one
# is needed, from the machine's own binaries, and thrown away. Nothing is installed on the machine but by `make postgres`.

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c

# The race detector needs a C compiler.
RACE := $(shell command -v gcc >/dev/null || command -v clang >/dev/null && echo -race)

# The tests that have programs of Node; where there is no npm, these programs are left out.
NODE_PACKAGES := $(if $(shell command -v npm),.cache/node/languages .cache/node/drawings .cache/node/browser)

.DEFAULT_GOAL := help
.PHONY: help test compile postgres chromium screenshots interleave model pairs proof rollout environments soak fuzz explain bench endurance bench-smoke charts citus demo vet format check-format check-comments lint \
	generate check-generated check-tidy drift migration cli atlas node release-check ci clean FORCE

help: ## List the targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | awk -F'\t' '{printf "%-16s %s\n", $$1, $$2}'

# What go test would vet, make lint vets.
test: bin/withpg bin/atlas $(NODE_PACKAGES) compile ## Run all tests on one throwaway Postgres (GENDURABLE_TEST_URL: on that server)
	@PATH="$$PATH:/usr/sbin" command -v pgbouncer >/dev/null || echo "no PgBouncer: its tests are skipped (make postgres installs it)"
	@command -v npm >/dev/null || echo "no Node: its tests are skipped"
	@command -v chromium chromium-browser google-chrome >/dev/null || echo "no Chromium: its tests are skipped (make chromium installs it)"
	@test -n "$${GENDURABLE_TEST_CITUS-}" || echo "no Citus: its tests are skipped (make citus PGBIN=… runs them)"
	bin/withpg go test -vet=off $(RACE) -timeout 15m $$(go list ./... | grep -vE '$(PROOFS)|$(SOAK)')
	bin/withpg go test -vet=off -timeout 30m $$(go list ./... | grep -E '$(PROOFS)')
	bin/withpg go test -vet=off -timeout 30m $$(go list ./... | grep -E '$(SOAK)')
	cd integration/hosts && ../../bin/withpg go test -vet=off $(RACE) -timeout 15m ./...
	cd telemetry && ../bin/withpg go test -vet=off $(RACE) -timeout 15m ./...
	cd integration/browser && ../../bin/withpg go test -vet=off -timeout 15m ./...

# On a new machine that takes minutes, in which no test is to wait for a processor, nor for programs that it builds itself.
compile: ## Download what the tests need, and compile it
	go list -export -deps ./... >/dev/null
	go list $(RACE) -export -deps -test $$(go list ./... | grep -vE '$(PROOFS)|$(SOAK)') >/dev/null
	go list -export -deps -test $$(go list ./... | grep -E '$(PROOFS)|$(SOAK)') >/dev/null
	cd integration/hosts && go list $(RACE) -export -deps -test ./... >/dev/null
	cd telemetry && go list $(RACE) -export -deps -test ./... >/dev/null
	cd integration/browser && go list -export -deps -test ./... >/dev/null

postgres: bin/withpg ## Install what is missing of Postgres and PgBouncer, as root by apt-get
	bin/withpg -install

chromium: ## Install Chromium, as root by apt-get, unless it is there
	command -v chromium chromium-browser google-chrome >/dev/null || \
		{ apt-get -qq update && apt-get -qq install --yes --no-install-recommends chromium; }

screenshots: bin/withpg ## Draw the pictures of the dashboard in docs anew
	mkdir -p docs/pictures
	cd integration/browser && SCREENSHOTS="$(CURDIR)/docs/pictures" ../../bin/withpg go test -count=1 -run TestScreenshots .

# They drive statements one after the other, or engines as others do that run with the detector, which would double their minutes.
PROOFS := /integration/(interleave|model|environments)$$|/internal/store$$

# Its fourteen processes have the machine to themselves, so that its faults meet processes that work, not such as wait for a processor.
SOAK := /integration/soak$$

interleave: bin/withpg ## Run the engine's statements from two sessions in a third of all orders, which SEED decides
	INTERLEAVE_SHARE=3 INTERLEAVE_SEED=$(or $(SEED),1) bin/withpg go test -count=1 -timeout 30m -v -run 'Interleaving|Stranger' ./integration/interleave

model: bin/withpg ## Drive the store and an in-memory reference through the same N random histories
	N=$(or $(N),500) bin/withpg go test -count=1 -timeout 120m -v -run 'Workers?$$|TestStreams|TestGraphs' ./integration/model

pairs: bin/withpg ## Combine each two features, with a verb and a fault: SEED= N= FEATURES= VERBS= FAULTS=, or one case, CASE=
	bin/withpg go test -count=1 -timeout 30m -v ./integration/pairs

proof: bin/withpg ## The long forms: all orders of two sessions, 5,000 histories, 5,000 storms, 1,000 starts and stops, every mutant
	INTERLEAVE_SHARE=1 bin/withpg go test -count=1 -timeout 60m -v -run 'Interleaving|Stranger|Mutant' ./integration/interleave
	N=$(or $(N),5000) bin/withpg go test -count=1 -timeout 120m -v -run 'Workers?$$|TestStreams|TestGraphs' ./integration/model
	FAIR=1 bin/withpg go test -count=1 -timeout 30m -v -run TestSharesOfTenants ./internal/store
	SEEDS=5000 go test -count=1 -timeout 60m -run TestStorm ./worker
	ROLLOUT_ROUNDS=5 bin/withpg go test -count=1 -timeout 30m -v -run OfVersions ./integration/rollout
	CYCLES=1000 bin/withpg go test -count=1 -timeout 60m -v -run TestStartingAndStopping ./integration
	N=60 bin/withpg go test -tags mutants -count=1 -timeout 120m -v -run TestMutants ./integration/model

soak: bin/soak ## Run the engine under faults on a Postgres of its own, and check its history (SECONDS=180 SEED=)
	bin/soak -recovery -seconds $(or $(SECONDS),180) -seed $(or $(SEED),0)

fuzz: bin/withpg ## Look for bad input that no test knows, TIME on each fuzz target in turn: make fuzz TIME=10m
	@grep -roE --include='*_test.go' '^func Fuzz[A-Za-z]+' $(SOURCES) | sort | while IFS=: read -r file function; do \
		out=$$(bin/withpg go test "./$$(dirname "$$file")" -run '^$$' -fuzz "^$${function#func }$$" -fuzztime "$(TIME)" \
			</dev/null 2>&1 | tee >(cat >&2)) || [[ $$out == *$(OUT_OF_TIME)* && $$out != *"Failing input"* ]]; done

# Go 1.26 may report the end of the time itself as a failure (golang/go#75804).
OUT_OF_TIME = $$'\n    context deadline exceeded\n'

TIME ?= 1m

bench: bin/bench ## Measure the targets beside the peers and bare Postgres: ONLY=P1,P3 ROUNDS=5 SCALE=1 FULL=1 JSON=file PROFILES=directory STATEMENTS=1; ONLY=P20 PGBIN=
	bin/bench -only "$(ONLY)" -rounds $(or $(ROUNDS),5) -scale $(or $(SCALE),1) $(if $(FULL),-full) \
		$(if $(JSON),-json "$(abspath $(JSON))") $(if $(PROFILES),-cpuprofile "$(abspath $(PROFILES))") $(if $(STATEMENTS),-statements) \
		$(if $(PGBIN),-citus "$(PGBIN)")

endurance: bin/bench ## Watch rate, memory and sizes under a load that lasts, with a worker of its own: MINUTES=30 ONLY=P13,P14 JSON=file
	bin/bench endurance -minutes $(or $(MINUTES),30) -only "$(ONLY)" -scale $(or $(SCALE),1) $(if $(JSON),-json "$(abspath $(JSON))")

bench-smoke: ## Run each benchmark with a few rows, to see that it still does
	cd bench && go vet ./... && go test -count=1 -timeout 5m ./...

charts: bin/bench ## Draw charts of a file of results: make charts JSON=file INTO=directory
	bin/bench chart "$(JSON)" "$(INTO)"

# Tables of that size belong on a disk, not into memory.
explain: bin/withpg ## Run the statements on large tables, bound the buffers that they touch, and write docs/plans: ROWS=1000000
	TMPDIR=$${TMPDIR:-/tmp} PLAN_PAGES=$(CURDIR)/docs/plans PLAN_ROWS=$(or $(ROWS),1000000) bin/withpg go test -count=1 -timeout 120m -v -run TestPlansHold ./internal/store
	TMPDIR=$${TMPDIR:-/tmp} PLAN_ROWS=$(or $(ROWS),1000000) bin/withpg go test -count=1 -timeout 120m -v -run TestPagesTouchFewBuffers ./dashboard

rollout: bin/withpg ## Run the rolling deploy beside a process of an older release, too: OLDER=tag or commit
	@test -n "$(OLDER)" || { echo "which release? make rollout OLDER=v0.1.0"; exit 1; }
	older=$$(mktemp -d) && git archive $(OLDER) | tar -x -C "$$older" && (cd "$$older" && go build -o rollout ./integration/rollout/cmd) && \
		ROLLOUT_OLDER=$$older/rollout bin/withpg go test -count=1 -timeout 15m -v ./integration/rollout; \
		result=$$?; rm -rf "$$older"; exit $$result

# On demand: the environments, the rolling deploy, and whatever else knows Postgres well, on each newer major version.
environments: bin/withpg $(MAJORS:%=.cache/postgres/%) ## Run the tests that depend on the server on other versions of Postgres: MAJORS="16 17 18", SUITE=packages
	for major in $(MAJORS); do \
		echo "== Postgres $$major"; \
		env -u GENDURABLE_TEST_URL PATH="$(CURDIR)/.cache/postgres/$$major/bin:$$PATH" GENDURABLE_TEST_MAJOR=$$major \
			bin/withpg go test $(RACE) -count=1 -timeout 15m $(SUITE); \
	done

MAJORS ?= 16 17 18
SUITE  ?= ./integration/environments ./integration/rollout ./internal/store ./entpgx ./migrations

.cache/postgres/%: bin/withpg
	bin/withpg -fetch $* $@

citus: bin/withpg bin/bench ## Run the tests of Citus on a throwaway cluster of PGBIN, the bin directory of a Postgres that has it
	@test -n "$(PGBIN)" || { echo "which Postgres? make citus PGBIN=/usr/lib/postgresql/15/bin (docs/citus.md says how Citus gets there)"; exit 1; }
	GENDURABLE_TEST_CITUS="$(PGBIN)" CITUS_ROUNDS=$(or $(ROUNDS),3) bin/withpg go test -count=1 -timeout 15m -v -run 'Citus|ADistributedSchema' $(CITUS)
	GENDURABLE_TEST_CITUS="$(PGBIN)" GENDURABLE_TEST_DISTRIBUTED=1 go test -count=1 -timeout 60m -skip 'Plan|Explain|Buffers|Shares' ./internal/store
	GENDURABLE_TEST_CITUS="$(PGBIN)" GENDURABLE_TEST_DISTRIBUTED=1 INTERLEAVE_SHARE=$(or $(SHARE),300) go test -count=1 -timeout 60m -v ./integration/interleave
	bin/bench -only P20 -citus "$(PGBIN)" -rounds 3 -scale 0.1

CITUS := ./internal/pgdev ./citus ./cluster ./cmd/gendurable ./integration

demo: ## Run the demo
	go run ./examples/demo

vet: ## Look for suspicious constructs
	go vet ./...
	cd integration/hosts && go vet ./...
	cd telemetry && go vet ./...
	cd integration/browser && go vet ./...
	cd tools/release && go vet ./...

format: ## Format the code
	gofmt -w $(SOURCES)

check-format: ## Fail where the code is not formatted
	@unformatted=$$(gofmt -l $(SOURCES)); test -z "$$unformatted" || { echo "not formatted (make format):"; echo "$$unformatted"; exit 1; }

# The Go files and folders at the top, but what is built.
SOURCES = $(filter-out bin,$(shell find . -mindepth 2 -name '*.go' -not -path './.*' | cut -d/ -f2 | sort -u))

check-comments: ## Fail where a comment is wider than 100 columns
	@! LC_ALL=C.UTF-8 grep -nE '^.{101,}$$' $$(grep -rL --include='*.go' '^// Code generated' $(SOURCES)) \
		| grep -E '^[^:]+:[0-9]+:[[:blank:]]*//([^a-z]|$$)'

# With the race detector, what make test has compiled serves.
lint: bin/golangci-lint ## Hold the code to .golangci.yml, and to the ban on LISTEN/NOTIFY
	GOFLAGS="$${GOFLAGS-} $(RACE)" bin/golangci-lint run ./...
	cd integration/hosts && GOFLAGS="$${GOFLAGS-} $(RACE)" ../../bin/golangci-lint run --config ../../.golangci.yml ./...
	cd telemetry && GOFLAGS="$${GOFLAGS-} $(RACE)" ../bin/golangci-lint run --config ../.golangci.yml ./...
	cd integration/browser && ../../bin/golangci-lint run --config ../../.golangci.yml ./...
	cd tools/release && ../../bin/golangci-lint run --config ../../.golangci.yml ./...
	@! grep -rnIE --include='*.go' --include='*.sql' '$(NOTIFICATIONS)' $(filter-out bench,$(SOURCES)) migrations \
		|| { echo "discovery is polling: LISTEN/NOTIFY is banned"; exit 1; }

NOTIFICATIONS = pg_notify|WaitForNotification|OnNotification|(LISTEN|NOTIFY|UNLISTEN) +["a-z*]

generate: ## Write all generated files anew: ent's client and the desired schema
	go generate ./...
	cd integration/hosts && go generate ./...

# The generator of ent's client has once left out an import that its file uses: what differs is written again before it counts.
check-generated: ## Fail where a generated file is not what make generate writes
	@before=$$($(FINGERPRINT)); for try in first second; do \
		$(MAKE) --no-print-directory generate; after=$$($(FINGERPRINT)); \
		diff <(echo "$$before") <(echo "$$after") && exit; done; \
		echo "generated files were stale, and are written anew now"; exit 1

FINGERPRINT = find . \( -name '*.go' -o -name '*.sql' \) -not -path './.*' -print0 | sort -z | xargs -0 sha256sum

check-tidy: ## Fail where a go.mod or go.sum is not what go mod tidy writes
	@for module in $(MODULES); do \
		(cd $$module && go mod tidy -diff) || { echo "not tidy: cd $$module && go mod tidy"; exit 1; }; done

MODULES = $(shell find . -name go.mod -not -path './.*' -not -path '*/node_modules/*' -printf '%h\n' | sort)

drift: bin/withpg ## Fail where the migrations do not add up to the schema that the code declares
	bin/withpg go run ./internal/ddl/cmd drift

migration: bin/withpg bin/atlas ## Write the migration from what is there to what the code declares: make migration NAME=what_it_does
	@test -n "$(NAME)" || { echo "usage: make migration NAME=what_it_does"; exit 1; }
	env -u GENDURABLE_TEST_URL bin/withpg sh -c \
		'DEV_DATABASE_URL=$$GENDURABLE_TEST_URL bin/atlas migrate diff "$(NAME)" --env local'

cli: bin/gendurable ## Build the command line tool as bin/gendurable

atlas: bin/atlas ## Build the Atlas CLI as bin/atlas

node: $(NODE_PACKAGES) ## Install what the tests' programs of Node import

release-check: ## Check that hosts can get the modules as committed, before VERSION=v0.1.0 is tagged
	cd tools/release && go run . $(if $(VERSION),-version "$(VERSION)")

ci: ## Run what continuous integration runs
	.ci/run

clean: ## Remove what was built here
	rm -rf bin

# The go command knows by itself whether anything is to be done.
bin/withpg: FORCE
	@go build -o $@ ./internal/pgdev/cmd/withpg

# A module of its own: what the peers need stays out of the library's.
bin/bench: FORCE
	@cd bench && go build -o ../$@ .

bin/gendurable: FORCE
	@go build -o $@ ./cmd/gendurable

bin/soak: FORCE
	@go build -o $@ ./integration/soak/cmd

# It runs for moments, and the optimizer would double the minutes that it takes to compile.
bin/atlas: tools/atlas/go.mod tools/atlas/go.sum
	cd tools/atlas && CGO_ENABLED=0 go build -gcflags='all=-N -l' -o ../../$@ ariga.io/atlas/cmd/atlas

.cache/node/%: integration/%/package.json integration/%/package-lock.json
	rm -rf $@.new && mkdir -p $@.new
	cp $^ $@.new
	cd $@.new && npm ci --silent --no-audit --no-fund --prefer-offline
	rm -rf $@ && mv $@.new $@ && touch $@

bin/golangci-lint: tools/lint/go.mod tools/lint/go.sum
	cd tools/lint && go build -o ../../$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

FORCE:
