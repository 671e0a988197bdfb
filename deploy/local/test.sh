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

# The digest in other languages; npm is for the test of the generated TypeScript client.
missing=()
for tool in node:nodejs npm:npm python3:python3; do
	if ! command -v "${tool%:*}" >/dev/null; then
		missing+=("${tool#*:}")
	fi
done
if [ ${#missing[@]} -gt 0 ]; then
	deploy/setup/packages.sh "${missing[@]}"
fi
# All of them, whichever fails.
failed=
(cd sdk/typescript && node --test) || failed=1
(cd sdk/python && python3 -B -m unittest) || failed=1
go test -count=1 -timeout 15m ./... || failed=1
go -C sdk/go test -count=1 -timeout 5m ./... || failed=1
go -C deploy/peers test -count=1 ./internal/report || failed=1
[ -z "$failed" ]
