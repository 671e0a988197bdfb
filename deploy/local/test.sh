#!/bin/bash
# Sets up what the tests need and runs them: all, or `go test` with the given arguments in the main module.
set -euo pipefail
cd "$(dirname "$0")/../.."

ORBIT_TEST_MYSQL_IMAGE=$(deploy/setup/mysql-image.sh)
# One server for all test binaries, made by the first that wants it.
ORBIT_TEST_MYSQL_CONTAINER=orbit-test-$$
export ORBIT_TEST_MYSQL_IMAGE ORBIT_TEST_MYSQL_CONTAINER
trap 'docker rm --force --volumes "$ORBIT_TEST_MYSQL_CONTAINER" >/dev/null 2>&1' EXIT

# Where the engine runs on this machine its ports are here too, whatever testcontainers makes of the surroundings.
if [ -e /run/docker.pid ] && kill -0 "$(cat /run/docker.pid)" 2>/dev/null; then
	export TESTCONTAINERS_HOST_OVERRIDE=${TESTCONTAINERS_HOST_OVERRIDE:-127.0.0.1}
fi
# The reaper's image comes from a registry: the machine that has the one has the other.
if [ "$ORBIT_TEST_MYSQL_IMAGE" = orbit-mysql:local ]; then
	export TESTCONTAINERS_RYUK_DISABLED=true
fi
echo "tests run on $(docker run --rm --entrypoint mysqld "$ORBIT_TEST_MYSQL_IMAGE" --version 2>/dev/null), image $ORBIT_TEST_MYSQL_IMAGE"

if [ $# -gt 0 ]; then
	go test -count=1 "$@"
	exit
fi

# The test of the generated TypeScript client.
if ! command -v npm >/dev/null; then
	deploy/setup/packages.sh nodejs npm
fi
go test -count=1 -timeout 15m ./...
go -C sdk/go test -count=1 -timeout 5m ./...
