# make build   bin/caddy, with the modules of this repository
# make run     build, and start Caddyfile.example
# make test    every test, with the race detector
# make lint    what CI checks besides
# make bench   what calls cost beside plain Caddy, in some six minutes once it is built; RUN=<regexp> for
#              some of the scenarios, TIMES=<n> for longer or shorter ones
# make microbench  every benchmark of the packages
# make fuzz    every fuzz target, FUZZTIME each
# make soak    two replicas under failing clients, configs and Redis, for SOAKTIME
# make generate  the built-in price table, from the npm package that it is made of
# make clean   take out what the others made

CADDY_VERSION := v2.11.9
GOLANGCI_LINT := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
MODULE        := github.com/llmlimits/caddy-llm-limits
FUZZTIME      ?= 30s
SOAKTIME      ?= 10m
SOAKSEED      ?= 1

# The tags and flags of xcaddy but -trimpath, and its CGO_ENABLED=0 for the linters
# too: thus Caddy is compiled once for all of them.
TAGS := -tags nobadger,nomysql,nopgx
export XCADDY_GO_BUILD_FLAGS := -ldflags "-w -s" $(TAGS)

SOURCES := go.mod go.sum $(shell find . \( -name .git -o -name bin -o -name node_modules -o -name testdata -o -path ./bench \) -prune \
	-o -type f -name '*.go' ! -name '*_test.go' -print)

# Real SDK clients, for the tests that use them.
SDK      := integration/sdk
SDK_LOCK := $(wildcard $(SDK)/package-lock.json)
NPM      := $(shell command -v npm 2>/dev/null)
ifneq ($(and $(SDK_LOCK),$(NPM)),)
SDK_READY := $(SDK)/node_modules/.package-lock.json
endif

# What drives Chromium, for the tests of pages.
BROWSER      := integration/browser
BROWSER_LOCK := $(wildcard $(BROWSER)/package-lock.json)
ifneq ($(and $(BROWSER_LOCK),$(NPM)),)
BROWSER_READY := $(BROWSER)/node_modules/.package-lock.json
endif

# A real Redis and a real browser, which the tests start themselves.
PROGRAMS := $(if $(shell command -v redis-server 2>/dev/null),,redis-server) \
	$(if $(shell command -v chromium || command -v chromium-browser || command -v google-chrome),,chromium)

.PHONY: build run test lint bench microbench fuzz soak generate clean redis-server chromium

build: bin/caddy

bin/caddy: $(SOURCES)
	go tool xcaddy build $(CADDY_VERSION) --output $@ --with $(MODULE)@v0.0.0=.

run: build
	bin/caddy run --config Caddyfile.example

test: $(SDK_READY) $(BROWSER_READY) $(PROGRAMS)
	go build -C integration/gosdk -o /dev/null . # or the test that runs it would wait for its compiling
	go test $(TAGS) -race -shuffle=on -timeout 30m ./... # the ten minutes of the default are few where other work goes on
	go test -C bench $(TAGS) -shuffle=on ./... # without the race detector, which allocates

$(SDK)/node_modules/.package-lock.json: $(SDK_LOCK)
	npm ci --prefix $(SDK) --no-audit --no-fund
	touch $@

$(BROWSER)/node_modules/.package-lock.json: $(BROWSER_LOCK)
	npm ci --prefix $(BROWSER) --no-audit --no-fund
	touch $@

redis-server chromium:
	@as_root=; [ "$$(id -u)" = 0 ] || as_root='sudo -n'; \
	if ! { command -v apt-get && $$as_root true; } >/dev/null 2>&1; then \
		echo 'the tests need $@; install it with: sudo apt-get install -y $@' >&2; \
		exit 1; \
	fi; \
	$$as_root apt-get update -qq && \
	$$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $@

lint: export CGO_ENABLED := 0
lint: build
	go mod tidy -diff
	go vet $(TAGS) ./...
	$(if $(NPM),go run ./llmcost/prices/internal/gen -dir llmcost/prices -check)
	go run $(GOLANGCI_LINT) run
	go -C bench mod tidy -diff
	cd bench && go run $(GOLANGCI_LINT) run --config ../.golangci.yml
	bin/caddy fmt --diff Caddyfile.example >/dev/null
	bin/caddy validate --config Caddyfile.example

# A module of its own keeps what it compares with out of the go.mod of users.
bench:
	go build -C bench $(TAGS) -o ../bin/bench .
	bin/bench $(if $(RUN),-run '$(RUN)') $(if $(TIMES),-times $(TIMES))

microbench:
	go test $(TAGS) -run '^$$' -bench . -benchmem ./...

fuzz:
	@set -e; for pkg in $$(go list ./...); do \
		listed=$$(go test $(TAGS) -list '^Fuzz' "$$pkg"); \
		for target in $$(printf '%s\n' "$$listed" | grep '^Fuzz' || :); do \
			echo "$$pkg $$target"; \
			go test $(TAGS) -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x "$$pkg"; \
		done; \
	done

soak: $(REDIS_READY)
	go test $(TAGS) -run '^TestCountersAreWhatWasServed$$' -count 1 -v -timeout 0 ./integration -soak $(SOAKTIME) -soakseed $(SOAKSEED)

generate:
	go generate ./llmcost/prices

clean:
	rm -rf bin $(SDK)/node_modules $(BROWSER)/node_modules
