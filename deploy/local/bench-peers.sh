#!/bin/bash
# Measures Orbit beside other queues and writes the figures into docs/performance.md: sets up a MySQL server in a
# container of its own, and PostgreSQL from Debian's packages, which the program in deploy/peers starts and ends.
# Usage: bench-peers.sh [FLAGS of that program]
set -euo pipefail
cd "$(dirname "$0")/../.."

if ! compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null && ! command -v postgres >/dev/null; then
	# It may start a cluster of the system's; that is not the one that is measured.
	deploy/setup/packages.sh postgresql
fi

# It is made for this run, so that nothing else is in it, and with the settings of `make run`.
unset ORBIT_DSN
export ORBIT_MYSQL_CONTAINER=orbit-peers-$$
trap 'deploy/setup/mysql.sh remove' EXIT
dsn=$(deploy/setup/mysql.sh start)
route='in a container, reached through its published port'

# reaches HOST: whether a connection to MySQL's port there is accepted within 2 seconds.
reaches() {
	timeout 2 bash -c "exec 3<>/dev/tcp/$1/3306" 2>/dev/null
}

# Where the engine is on this machine the container has an address here. The published port may go through a forwarding
# process, which lengthens every round trip.
address=$(docker inspect --format '{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}' "$ORBIT_MYSQL_CONTAINER")
if [ -n "$address" ] && reaches "$address"; then
	dsn="${dsn%%(*}($address:3306)/"
	route="in a container, reached by the container's own address"
fi

# Its processes have the priority of the engine's, which may have been started with another one than this run has.
pid=$(docker inspect --format '{{.State.Pid}}' "$ORBIT_MYSQL_CONTAINER")
if [ "$(id -u)" -eq 0 ] && [ -e "/proc/$pid/task" ]; then
	find "/proc/$pid/task" -mindepth 1 -maxdepth 1 -printf '%f\n' | xargs renice --priority "$(nice)" --pid >/dev/null
fi

make --no-print-directory build
go -C deploy/peers build -o ../../bin/peers .
bin/peers -dsn "${dsn%/*}/" -route "$route" -orbit bin/orbit -revision "$(git rev-parse --short HEAD)" -page docs/performance.md "$@"
