#!/bin/bash
# Makes sure that a Docker engine answers: does nothing where one does; as root on Debian, installs the engine from
# Debian's packages where it is missing, and starts it.
set -euo pipefail
cd "$(dirname "$0")"

log=/var/log/orbit-dockerd.log

engine_answers() {
	docker version >/dev/null 2>&1
}

# started PID: waits until the engine answers; fails as soon as its process has ended, or after 30 seconds.
started() {
	local i
	for ((i = 0; i < 300; i++)); do
		if engine_answers; then
			return 0
		fi
		if ! kill -0 "$1" 2>/dev/null; then
			return 1
		fi
		sleep 0.1
	done
	kill "$1"
	return 1
}

# forget FILE NAME: removes a pid file whose process is gone. The engine would take another process that has the
# number meanwhile for its own.
forget() {
	local pid
	pid=$(cat "$1" 2>/dev/null) || return 0
	if [ "$(cat "/proc/$pid/comm" 2>/dev/null)" != "$2" ]; then
		rm -f "$1"
	fi
}

# start FLAGS...: starts the engine in the background, in a session of its own so that it outlives this terminal.
start() {
	echo "starting the Docker engine: dockerd $*" >&2
	setsid dockerd "$@" </dev/null >>"$log" 2>&1 9>&- &
	started $!
}

# legacy_iptables: lets the engine find the older iptables first, for kernels without nftables.
legacy_iptables() {
	local dir=/run/orbit-iptables
	mkdir -p "$dir"
	ln -sf "$(command -v iptables-legacy)" "$dir/iptables"
	ln -sf "$(command -v ip6tables-legacy)" "$dir/ip6tables"
	PATH="$dir:$PATH"
}

if engine_answers; then
	exit 0
fi
if [ "$(id -u)" -ne 0 ]; then
	echo "no Docker engine answers: start Docker, or set ORBIT_DSN (make run) or ORBIT_TEST_DSN (make test) to a MySQL 8.4 or newer" >&2
	exit 1
fi

exec 9>/run/orbit-docker.lock
flock 9
if engine_answers; then
	exit 0
fi
if ! command -v dockerd >/dev/null; then
	./packages.sh docker.io iptables
fi
if [ -d /run/systemd/system ]; then
	systemctl start docker >&2
	engine_answers
	exit
fi
forget /run/docker.pid dockerd
forget /run/docker/containerd/containerd.pid containerd
if start; then
	exit 0
fi
echo "it did not start; once more with the older iptables" >&2
if (legacy_iptables && start); then
	exit 0
fi
# Published ports then go through the engine's own proxy; containers reach nothing outside.
echo "it did not start; once more without iptables" >&2
if start --iptables=false --ip6tables=false; then
	exit 0
fi
echo "the Docker engine did not start; the end of $log:" >&2
tail -n 20 "$log" >&2
exit 1
