#!/bin/bash
# Prints the name of a MySQL image that this machine's Docker engine has, and gets it first where none is there:
# ORBIT_TEST_MYSQL_IMAGE, else mysql:8.4 where a registry answers, else the one built from Debian's packages.
set -euo pipefail
cd "$(dirname "$0")"

official=mysql:8.4
local=orbit-mysql:local

have() {
	docker image inspect "$1" >/dev/null 2>&1
}

# pull IMAGE: pulls it. Gives up when the registry has not answered within 10 seconds.
pull() {
	local log pid i
	log=$(mktemp)
	docker pull "$1" >"$log" 2>&1 &
	pid=$!
	for ((i = 0; i < 100; i++)); do
		if grep -q 'Pulling from' "$log"; then
			echo "pulling $1" >&2
			break
		fi
		if ! kill -0 "$pid" 2>/dev/null; then
			break
		fi
		sleep 0.1
	done
	if ! grep -q 'Pulling from' "$log"; then
		kill "$pid" 2>/dev/null || true
	fi
	rm "$log"
	wait "$pid"
}

./docker.sh
if [ -n "${ORBIT_TEST_MYSQL_IMAGE:-}" ]; then
	echo "$ORBIT_TEST_MYSQL_IMAGE"
elif have "$official"; then
	echo "$official"
elif have "$local"; then
	echo "$local"
elif pull "$official"; then
	echo "$official"
else
	echo "no registry of images answers" >&2
	../mysql-image/build.sh "$local"
	echo "$local"
fi
