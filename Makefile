# Everything that is done with this repository, each as one target; `make help` lists them.
#
# The tools are built from the Go module proxy, pinned by the modules below tools/. A Postgres server is started where one
# is needed, from the machine's own binaries, and thrown away. Nothing is installed on the machine but by `make postgres`.

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c

# The race detector needs a C compiler.
RACE := $(shell command -v gcc >/dev/null || command -v clang >/dev/null && echo -race)

# The tests that have programs of Node; where there is no npm, these programs are left out.
NODE_PACKAGES := $(if $(shell command -v npm),.cache/node/languages .cache/node/drawings .cache/node/browser .cache/node/site)

.DEFAULT_GOAL := help
.PHONY: help test ci checks checks-static checks-lint download tests-race tests-modules steady proof postgres chromium screenshots site interleave model pairs rollout environments soak fuzz \
	sql explain bench bench-quick endurance bench-smoke charts citus demo vet format check-format check-comments lint generate check-generated check-tidy check-json check-platforms drift migration \
	cli atlas node tools release-check clean FORCE

help: ## List the targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | awk -F'\t' '{printf "%-16s %s\n", $$1, $$2}'

# Three tiers of proof (CONTRIBUTING.md says what each is for):
#
#   make test    each promise in its short form: to know in minutes that the tree is sound
#   make ci      what a change has to pass before it lands
#   make proof   what a release has to pass
#
# A test asks package internal/tier in which of them it runs. Each stage says what it took, bin/tier report where the time went.
STAGE := bin/tier stage
export TIER_LOG := $(CURDIR)/.cache/stages.jsonl

# Tests mostly wait: for leases, for locks, for each other's commits. So many of them run at a time.
GOTEST := go test -json -vet=off

test: bin/withpg bin/tier ## Know in minutes that the tree is sound: run each test in its short form (GENDURABLE_TEST_URL: on that server)
	@bin/tier begin; trap 'bin/tier report' EXIT; \
	$(TOOLS)$(STAGE) download go mod download; \
	$(STAGE) compile sh -c 'go list -export -deps -test $(TESTED) >/dev/null && cd integration/hosts && go list -export -deps -test ./... >/dev/null'; \
	$(STAGE) test bin/withpg $(GOTEST) $(FORM) $(BESIDE) -timeout 15m $(TESTED); \
	$(STAGE) hosts bin/withpg go -C integration/hosts test -json -vet=off $(FORM) -timeout 10m ./...

FORM   := -short
BESIDE := -p 4 -parallel 8
TESTED := ./...

# With TIER=ci those tests run, too, that need other programs or more time, but none that make checks runs: make ci runs none twice.
# Larger samples compute more, so fewer of these tests run at a time.
ifeq ($(TIER),ci)
FORM   :=
BESIDE := -p 3 -parallel 5
TESTED  = $(filter-out $(patsubst ./%,$(MODULE)/%,$(RACED)),$(shell go list ./...))
TOOLS   = $(STAGE) tools $(MAKE) --no-print-directory -j 4 tools; $(WITHOUT) 
WITHOUT = command -v npm >/dev/null || echo "no Node: its tests are skipped"; \
	PATH="$$PATH:/usr/sbin" command -v pgbouncer >/dev/null || echo "no PgBouncer: its tests are skipped (make postgres installs it)";
endif

ci: ## Run what a change has to pass before it lands: COLD=1 with empty caches of Go
	.ci/run

# Nothing is checked twice: lint has the analyzers of go vet.
checks: bin/withpg bin/tier ## Run what make ci runs after make test TIER=ci, on what is installed
	@bin/tier begin; trap 'bin/tier report' EXIT; \
	$(STAGE) format $(MAKE) --no-print-directory check-format check-comments; \
	$(STAGE) tools $(MAKE) --no-print-directory -j 4 tools; \
	$(STAGE) compile sh -c 'go list $(RACE) -export -deps -test $(RACED) >/dev/null'; \
	$(MAKE) --no-print-directory -j 1 checks-static tests-race; \
	$(MAKE) --no-print-directory -j 2 checks-lint tests-modules

checks-static: bin/tier
	@for check in check-tidy check-generated drift check-json; do $(STAGE) $$check $(MAKE) --no-print-directory -j 1 $$check || exit 1; done

# The linter computes, and the tests beside it mostly wait. They go first. Tests with the race detector
# have the machine to themselves: some of them hold thousands of rows.
checks-lint: bin/golangci-lint bin/tier
	@$(STAGE) lint nice -n 19 $(MAKE) --no-print-directory -j 1 lint

# Goroutines meet in these packages. The race detector makes them compute several times as much, so their tests run in the short form.
RACED := ./internal/work ./engine ./internal/send ./cluster ./entpgx ./dashboard ./integration

# These tests run without it. They compute for one goroutine, compare durations, or need much memory.
UNRACED := ^(TestNobodyWaitsForWhatTheyDoNotNeed|TestNobodyWaitsBesideACrowd|TestManyLargeStates|TestAPI|TestAPIAccess|TestWhatLiesOutsideDoesNotExist|TestExportsNeedTheRoomOfAnInstance|TestEveryRouteKeepsToTheAccess|TestPagesHaveAllPlaces|TestPagesOfferWhatTheAccessMay|TestPagesTouchFewBuffers)$$

tests-race: bin/withpg bin/tier ## Run the tests of the packages where goroutines meet, with the race detector
	@$(STAGE) race bin/withpg $(GOTEST) $(RACE) -short -skip '$(UNRACED)' -p 3 -parallel 6 -timeout 15m $(RACED)
	@$(STAGE) unraced bin/withpg $(GOTEST) -short -run '$(UNRACED)' -p 2 -parallel 8 -timeout 15m ./dashboard ./integration

MODULE := github.com/gendurable/gendurable

tests-modules: bin/withpg bin/tier $(NODE_PACKAGES) ## Run the tests of the modules beside the library
	@command -v chromium chromium-browser google-chrome >/dev/null || echo "no Chromium: its tests are skipped (make chromium installs it)"
	@for module in integration/clients integration/extensions telemetry integration/browser tools/release; do \
		$(STAGE) $$module bin/withpg go -C $$module test -json -vet=off -timeout 10m ./... || exit 1; done
	@$(STAGE) examples/bakery bin/withpg $(MAKE) --no-print-directory release-check

tools: bin/atlas bin/golangci-lint node download ## Build the tools of make ci, and download what its tests need

download:
	@for module in . integration/hosts integration/clients integration/extensions telemetry integration/browser tools/release; do (cd $$module && go mod download) || exit 1; done

steady: bin/withpg bin/tier ## Show that no test decides by time: three times make test beside LOAD=10 busy loops, or PKG=./package twenty times
	@bin/tier begin; trap 'bin/tier report' EXIT; \
	for run in $(if $(PKG),once,1 2 3); do $(STAGE) "beside a load, run $$run" bin/tier beside $(or $(LOAD),10) \
		bin/withpg $(GOTEST) -short -p 4 -parallel 8 -timeout 40m $(if $(PKG),-count=20 $(PKG),-count=1 ./...) || exit 1; done

postgres: bin/withpg ## Install what is missing of Postgres and PgBouncer, as root by apt-get
	bin/withpg -install

chromium: ## Install Chromium, as root by apt-get, unless it is there
	command -v chromium chromium-browser google-chrome >/dev/null || \
		{ apt-get -qq update && apt-get -qq install --yes --no-install-recommends chromium; }

screenshots: bin/withpg ## Draw the pictures of the dashboard in docs anew
	mkdir -p docs/pictures
	cd integration/browser && SCREENSHOTS="$(CURDIR)/docs/pictures" ../../bin/withpg go test -count=1 -run TestScreenshots .

site: .cache/node/site ## Make the site of the documentation in .cache/site, for any web server: BASE=/below/ VERSION=v0.1.0
	rm -rf .cache/site
	node tools/site/build.mjs --packages .cache/node/site/node_modules --into .cache/site --base "$(or $(BASE),/)" $(if $(VERSION),--version "$(VERSION)")

interleave: bin/withpg ## Run the engine's statements from two sessions in a third of all orders, which SEED decides
	INTERLEAVE_SHARE=3 INTERLEAVE_SEED=$(or $(SEED),1) bin/withpg go test -count=1 -timeout 30m -v -run 'Interleaving|Stranger' ./integration/interleave

model: bin/withpg ## Drive the store and an in-memory reference through the same N random histories
	N=$(or $(N),500) bin/withpg go test -count=1 -timeout 120m -v -run 'Workers?$$|TestStreams|TestGraphs' ./integration/model

pairs: bin/withpg ## Combine each two features, with a verb and a fault: SEED= N= FEATURES= VERBS= FAULTS=, or one case, CASE=
	bin/withpg go test -count=1 -timeout 30m -v ./integration/pairs

# Each part takes less than an hour on two cores, and writes its row of docs/proof.md.
PARTS := cold release long race json orders-1 orders-2 orders-3 orders-4 strangers model graphs mutants statements storms pairs-1 pairs-2 month clients cycles rollout environments soak plans fuzz

proof: $(or $(PART:%=proof-%),$(PARTS:%=proof-%)) ## Prove what a release has to: PART="model soak", else all parts; docs/proof.md has what was proven when

# What an earlier run has cached proves nothing.
# A part of several commands ends with -json, by which bin/tier knows that they print test events.
PROVE = bin/tier proof $(@:proof-%=%)
LONG  = env GENDURABLE_PROOF=1 bin/withpg $(GOTEST) -count=1 -timeout 90m

proof-cold: bin/tier ## (empty caches of Go, as on a new machine)
	$(PROVE) env COLD=1 .ci/run

proof-release: bin/tier
	$(PROVE) $(MAKE) --no-print-directory check-platforms release-check

# What the other parts run is not run here.
proof-long: bin/withpg bin/tier bin/atlas $(NODE_PACKAGES)
	$(PROVE) sh -c '$(LONG) -p 2 -parallel 8 -skip TestStartingAndStopping \
		$$(go list ./... | grep -vE "/integration/(interleave|model|pairs|soak|rollout|environments)$$|/internal/store$$|/internal/work$$|/entpgx$$") && \
		env GENDURABLE_PROOF=1 bin/withpg go -C integration/hosts test -json -vet=off -count=1 -timeout 30m ./... && \
		env GENDURABLE_PROOF=1 bin/withpg go -C integration/extensions test -json -vet=off -count=1 -timeout 30m ./...' -json

proof-race: bin/withpg bin/tier
	$(PROVE) bin/withpg $(GOTEST) $(RACE) -count=1 -timeout 90m -p 2 -parallel 8 ./...

# Go 1.27 makes this the library's own encoding/json; older toolchains have it as an experiment.
proof-json: bin/tier
	$(PROVE) sh -c 'for with in GOEXPERIMENT=jsonv2 GOTOOLCHAIN=$(NEXT_GO); do \
		if env $$with go list encoding/json/v2 >/dev/null 2>&1; then \
			env GENDURABLE_PROOF=1 $$with $(GOTEST) -count=1 -timeout 10m ./fsm ./internal/step || exit 1; \
		else echo "there is no toolchain with $$with: its tests are skipped" >&2; fi; done' -json

NEXT_GO := go1.27.0

proof-orders-%: bin/withpg bin/tier
	$(PROVE) env INTERLEAVE_PART=$*/4 $(LONG) -run 'TestEveryInterleaving' ./integration/interleave

proof-strangers: bin/withpg bin/tier
	$(PROVE) $(LONG) -skip 'TestEveryInterleaving' ./integration/interleave

proof-model: bin/withpg bin/tier
	$(PROVE) $(LONG) -skip 'TestGraphs' ./integration/model

proof-graphs: bin/withpg bin/tier
	$(PROVE) $(LONG) -run 'TestGraphs' ./integration/model

proof-mutants: bin/withpg bin/tier
	$(PROVE) env N=60 bin/withpg $(GOTEST) -tags mutants -count=1 -timeout 90m -run TestMutants ./integration/model

proof-statements: bin/withpg bin/tier
	$(PROVE) $(LONG) -skip 'TestPlansHold' ./internal/store

proof-storms: bin/withpg bin/tier
	$(PROVE) $(LONG) -p 1 ./internal/work ./entpgx

proof-pairs-%: bin/withpg bin/tier
	$(PROVE) env PAIRS_PART=$*/2 $(LONG) -run 'TestPairs$$' ./integration/pairs

proof-month: bin/withpg bin/tier
	$(PROVE) $(LONG) -skip 'TestPairs$$' ./integration/pairs

proof-clients: bin/withpg bin/tier
	$(PROVE) env GENDURABLE_PROOF=1 bin/withpg go -C integration/clients test -json -vet=off -count=1 -timeout 90m ./...

proof-cycles: bin/withpg bin/tier
	$(PROVE) $(LONG) -run TestStartingAndStopping ./integration

proof-rollout: bin/withpg bin/tier
	$(PROVE) $(LONG) ./integration/rollout

proof-environments: bin/withpg bin/tier
	$(PROVE) $(MAKE) --no-print-directory environments

# The soak's processes have the machine to themselves, so that its faults meet processes that work, not such as wait for a processor.
proof-soak: bin/soak bin/calls bin/withpg bin/tier
	$(PROVE) sh -c 'mkdir -p .cache && $(LONG) ./integration/soak && bin/soak -recovery -seconds $(or $(SECONDS),1860) -calls .cache/calls.jsonl && bin/calls .cache/calls.jsonl' -json

proof-plans: bin/withpg bin/tier
	$(PROVE) $(MAKE) --no-print-directory explain

proof-fuzz: bin/withpg bin/tier
	$(PROVE) $(MAKE) --no-print-directory fuzz

proven: bin/tier ## Fail unless all parts of make proof were run on this code
	@bin/tier proven

soak: bin/soak bin/calls ## Run the engine under faults on a Postgres of its own, and check its history and what clients were told (SECONDS=180 SEED=)
	mkdir -p .cache
	bin/soak -recovery -seconds $(or $(SECONDS),180) -seed $(or $(SEED),0) -calls .cache/calls.jsonl
	bin/calls .cache/calls.jsonl

fuzz: bin/withpg ## Look for bad input that no test knows, TIME on each fuzz target in turn: make fuzz TIME=10m
	@grep -roE --include='*_test.go' '^func Fuzz[A-Za-z]+' $(SOURCES) | sort | while IFS=: read -r file function; do \
		out=$$(bin/withpg go test "./$$(dirname "$$file")" -run '^$$' -fuzz "^$${function#func }$$" -fuzztime "$(TIME)" \
			</dev/null 2>&1 | tee >(cat >&2)) || [[ $$out == *$(OUT_OF_TIME)* && $$out != *"Failing input"* ]]; done

# Go 1.26 may report the end of the time itself as a failure (golang/go#75804).
OUT_OF_TIME = $$'\n    context deadline exceeded\n'

TIME ?= 1m

bench: bin/bench ## Measure the targets beside the peers and bare Postgres: ONLY=P1,P3 ROUNDS=5 SCALE=1 FULL=1 JSON=file PROFILES=directory STATEMENTS=1; ONLY=P22 PROCESSES=4,16; ONLY=P20 PGBIN=
	bin/bench -only "$(ONLY)" -rounds $(or $(ROUNDS),5) -scale $(or $(SCALE),1) $(if $(FULL),-full) \
		$(if $(JSON),-json "$(abspath $(JSON))") $(if $(PROFILES),-cpuprofile "$(abspath $(PROFILES))") $(if $(STATEMENTS),-statements) \
		$(if $(PROCESSES),-processes "$(PROCESSES)") $(if $(PGBIN),-citus "$(PGBIN)")

.PHONY: bench-quick bench-compare
bench-quick: bin/bench ## Take a quick look at speed in three minutes, before a change and after: JSON=file
	bin/bench -quick $(if $(ONLY),-only "$(ONLY)") $(if $(ROUNDS),-rounds $(ROUNDS)) $(if $(JSON),-json "$(abspath $(JSON))")

bench-compare: bin/bench ## Show what has changed between two files of results: BEFORE=file AFTER=file
	bin/bench compare "$(BEFORE)" "$(AFTER)"

endurance: bin/bench ## Watch rate, memory and sizes under a load that lasts, with a worker of its own: MINUTES=30 ONLY=P13,P14 JSON=file
	bin/bench endurance -minutes $(or $(MINUTES),30) -only "$(ONLY)" -scale $(or $(SCALE),1) $(if $(JSON),-json "$(abspath $(JSON))")

bench-smoke: ## Run each benchmark with a few rows, to see that it still does
	cd bench && go vet ./... && go test -count=1 -timeout 10m ./...

charts: bin/bench ## Draw charts of a file of results: make charts JSON=file INTO=directory
	bin/bench chart "$(JSON)" "$(INTO)"

# Tables of that size belong on a disk, not into memory.
sql: ## Print a statement whole, as it is sent: NAME=commit; without NAME, list the names
	@cd internal/store/testdata/sql && $(if $(NAME),cat "$$(tr ' ' _ <<<'$(NAME)').sql",ls | sed -n 's/\.sql$$//p')

explain: bin/withpg ## Run the statements on large tables, bound the buffers that they touch, and write docs/plans: ROWS=1000000
	TMPDIR=$${TMPDIR:-/tmp} PLAN_PAGES=$(CURDIR)/docs/plans PLAN_ROWS=$(or $(ROWS),1000000) bin/withpg go test -count=1 -timeout 120m -v -run TestPlansHold ./internal/store
	TMPDIR=$${TMPDIR:-/tmp} PLAN_ROWS=$(or $(ROWS),1000000) bin/withpg go test -count=1 -timeout 120m -v -run TestPagesTouchFewBuffers ./dashboard

rollout: bin/withpg ## Run the rolling deploy: this build beside one of the next release, which the tests make of it
	bin/withpg go test -count=1 -timeout 15m -v ./integration/rollout

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
	cd integration/clients && go vet ./...
	cd integration/extensions && go vet ./...
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

# What hosts import, and the command line tool. Tests, and the server that they start, need a Unix.
check-platforms: ## Fail where the library or the command line tool does not compile for another system
	@for os in darwin windows; do \
		CGO_ENABLED=0 GOOS=$$os go build $$(go list ./... | grep -vE '/(examples|integration|bench|docs|internal)(/|$$)') && \
		(cd telemetry && CGO_ENABLED=0 GOOS=$$os go build ./...) || { echo "it does not compile for $$os"; exit 1; }; done

lint: bin/golangci-lint ## Hold the code to .golangci.yml, and to the ban on LISTEN/NOTIFY
	bin/golangci-lint run ./...
	@for module in integration/hosts integration/clients integration/extensions telemetry integration/browser tools/release; do \
		(cd $$module && $(CURDIR)/bin/golangci-lint run --config $(CURDIR)/.golangci.yml ./...) || exit 1; done
	@! grep -rnIE --include='*.go' --include='*.sql' '$(NOTIFICATIONS)' $(filter-out bench,$(SOURCES)) migrations \
		|| { echo "discovery is polling: LISTEN/NOTIFY is banned"; exit 1; }

NOTIFICATIONS = pg_notify|WaitForNotification|OnNotification|(LISTEN|NOTIFY|UNLISTEN) +["a-z*]

generate: ## Write all generated files anew: ent's client and the desired schema
	go generate ./...
	cd integration/hosts && go generate ./...
	cd integration/extensions && go generate ./...

# The files are written in a copy: beside this check, tests compile those that are here. The generator of ent's client has once left
# out an import that its file uses, so what differs is written twice before it counts.
check-generated: ## Fail where a generated file is not what make generate writes
	@copy=$$(mktemp -d); trap 'rm -rf "$$copy"' EXIT; \
	tar -c --exclude='./.*' --exclude=./bin . | tar -x -C "$$copy"; \
	for try in first second; do \
		$(MAKE) --no-print-directory -C "$$copy" generate; \
		diff -r --brief --exclude='.*' --exclude=bin . "$$copy" && exit; done; \
	echo "generated files are stale: make generate"; exit 1

check-tidy: ## Fail where a go.mod or go.sum is not what go mod tidy writes
	@for module in $(MODULES); do \
		(cd $$module && go mod tidy -diff) || { echo "not tidy: cd $$module && go mod tidy"; exit 1; }; done

# The bakery needs released modules: make release-check builds it.
MODULES = $(shell find . -name go.mod -not -path './.*' -not -path './examples/bakery/*' -not -path '*/node_modules/*' -printf '%h\n' | sort)

drift: bin/withpg ## Fail where the migrations do not add up to the schema that the code declares
	bin/withpg go run ./internal/ddl/cmd drift

# From Go 1.27 on this is the library's own encoding/json.
check-json: ## Run the tests of what is stored with the second version of encoding/json
	@if GOEXPERIMENT=jsonv2 go list encoding/json/v2 >/dev/null 2>&1; then GOEXPERIMENT=jsonv2 go test -vet=off -short ./fsm ./internal/step; \
	else echo "this Go has no second version of encoding/json: its tests are skipped"; fi

migration: bin/withpg bin/atlas ## Write the migration from what is there to what the code declares: make migration NAME=what_it_does
	@test -n "$(NAME)" || { echo "usage: make migration NAME=what_it_does"; exit 1; }
	env -u GENDURABLE_TEST_URL bin/withpg sh -c \
		'DEV_DATABASE_URL=$$GENDURABLE_TEST_URL bin/atlas migrate diff "$(NAME)" --env local'

cli: bin/gendurable ## Build the command line tool as bin/gendurable

atlas: bin/atlas ## Build the Atlas CLI as bin/atlas

node: $(NODE_PACKAGES) ## Install what the tests' programs of Node import

release-check: ## Check that hosts can get the modules as committed, and that the bakery's tests pass with them, before VERSION=v0.1.0 is tagged
	cd tools/release && go run . $(if $(VERSION),-version "$(VERSION)")

clean: ## Remove what was built here
	rm -rf bin

# The go command knows by itself whether anything is to be done.
bin/withpg: FORCE
	@go build -o $@ ./internal/pgdev/cmd/withpg

# A module of its own: what the peers need stays out of the library's.
bin/bench: FORCE
	@cd bench && go build -o ../$@ .

bin/tier: FORCE
	@go build -o $@ ./internal/tier/cmd/tier

bin/gendurable: FORCE
	@go build -o $@ ./cmd/gendurable

bin/soak: FORCE
	@go build -o $@ ./integration/soak/cmd

# It looks for an order of the calls that a soak has recorded, by porcupine, which the library does not need.
bin/calls: FORCE
	@cd integration/clients && go build -o ../../$@ ./cmd

# It runs for moments, and the optimizer would double the minutes that it takes to compile.
bin/atlas: tools/atlas/go.mod tools/atlas/go.sum
	cd tools/atlas && CGO_ENABLED=0 go build -gcflags='all=-N -l' -o ../../$@ ariga.io/atlas/cmd/atlas

.cache/node/%: integration/%/package.json integration/%/package-lock.json
	$(NODE_INSTALL)

.cache/node/site: tools/site/package.json tools/site/package-lock.json
	$(NODE_INSTALL)

define NODE_INSTALL
rm -rf $@.new && mkdir -p $@.new
cp $^ $@.new
cd $@.new && npm ci --silent --no-audit --no-fund --prefer-offline
rm -rf $@ && mv $@.new $@ && touch $@
endef

bin/golangci-lint: tools/lint/go.mod tools/lint/go.sum
	cd tools/lint && go build -o ../../$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

FORCE:
