#!/bin/bash
# Ends the processes of `make run`, by the pid files in .run, and then its MySQL container.
set -euo pipefail
cd "$(dirname "$0")/../.."

# is_ours PID: whether that process is our binary still. A number may have gone to another process meanwhile.
is_ours() {
	local command
	command=$(cat "/proc/$1/comm" 2>/dev/null || ps -o comm= -p "$1" 2>/dev/null) || return
	[ "${command##*/}" = orbit ]
}

for file in .run/*.pid; do
	if [ ! -e "$file" ]; then
		continue
	fi
	pid=$(cat "$file")
	if is_ours "$pid"; then
		echo "stopping orbit, process $pid"
		kill -TERM "$pid"
		for ((i = 0; i < 450; i++)); do
			if ! is_ours "$pid"; then
				break
			fi
			sleep 0.1
		done
		if is_ours "$pid"; then
			echo "it did not end within 45 seconds: killed" >&2
			kill -KILL "$pid"
		fi
	fi
	rm -f "$file"
done
deploy/setup/mysql.sh stop
