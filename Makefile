# `make help` lists what there is.

.DEFAULT_GOAL := help

# The same flags everywhere, so that builds share their cache whatever directory they run in.
export GOFLAGS := -trimpath

SETUP := deploy/setup
# What `make run` works through: every regular file under this directory is a task.
DIR ?= $(shell go env GOROOT)/src

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## set up, start Orbit in the background and run the demo on DIR (Go's own sources)
	@deploy/local/run.sh "$(DIR)"

stop: ## end what `make run` left running; its data stay
	@deploy/local/stop.sh

test: ## set up and run all tests
	@deploy/local/test.sh

bench-peers: ## measure Orbit beside River and a table in the manner of Solid Queue; writes docs/performance.md
	@deploy/local/bench-peers.sh

check: check-gen check-sql check-api check-go check-shell ## everything that a change must pass besides the tests

gen: bin/.tools ## delete and rebuild all generated code
	rm -rf gen sdk/go/api
	mkdir -p gen
	bin/sqlc generate
	bin/overlay openapi/server.overlay.yaml openapi/orbit.yaml > gen/server.yaml
	bin/ogen --loglevel error --config openapi/ogen-server.yml --target gen/api --package api --clean gen/server.yaml
	bin/ogen --loglevel error --config openapi/ogen-client.yml --target sdk/go/api --package api --clean openapi/orbit.yaml
	go run ./schema/internal/dictionary > docs/data-dictionary.md

tools: bin/.tools ## build the pinned tools into bin/
build: bin/orbit ## build bin/orbit
docker: ## make sure that a Docker engine answers
	@$(SETUP)/docker.sh
mysql-image: ## make sure that a MySQL image is there, and print its name
	@$(SETUP)/mysql-image.sh

clean: stop ## remove what was built, and the data of `make run`
	@$(SETUP)/mysql.sh remove
	rm -rf bin .run

# The generated code is what `make gen` makes of the sources, with no file more or less.
check-gen: bin/.tools
	deploy/check/gen.sh

# The rules of sqlc.yaml need no server; whether every query fits the tables only a server can say.
check-sql: bin/.tools
	bin/sqlc vet
	deploy/local/test.sh -run '^TestEveryQueryPrepares$$' ./integration

check-api: bin/.tools
	bin/openapi-lint openapi/lint.yaml openapi/orbit.yaml
	deploy/check/released.sh

check-go: bin/.tools
	deploy/check/imports.sh
	deploy/check/modules.sh
	bin/golangci-lint run --allow-parallel-runners ./...
	cd sdk/go && ../../bin/golangci-lint run --allow-parallel-runners ./...
	cd tools && ../bin/golangci-lint run --allow-parallel-runners ./...
	cd deploy/peers && ../../bin/golangci-lint run --allow-parallel-runners ./...

check-shell:
	deploy/check/shell.sh

# No C compiler is needed, and none changes what the tools are.
bin/.tools: $(wildcard tools/go.* tools/*/*)
	CGO_ENABLED=0 go -C tools build -o ../bin/ tool ./overlay ./openapi-lint
	CGO_ENABLED=0 go -C tools/golangci-lint build -o ../../bin/ tool
	touch $@

bin/orbit: FORCE
	go build -o $@ ./cmd/orbit

FORCE:

.PHONY: help run stop test bench-peers check gen tools build docker mysql-image clean check-gen check-sql check-api check-go check-shell FORCE
