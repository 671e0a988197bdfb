#!/bin/bash
# Starts Orbit in the background and runs the demo. Usage: run.sh DIRECTORY
# `orbit demo` does the work: it migrates, bootstraps, starts `orbit serve` and leaves it running with its pid in
# .run/orbit.pid.
set -euo pipefail
cd "$(dirname "$0")/../.."

directory=${1:?usage: run.sh DIRECTORY}
deploy/local/stop.sh
mkdir -p .run
ORBIT_DSN=$(deploy/setup/mysql.sh start)
export ORBIT_DSN
make --no-print-directory build
exec bin/orbit demo --dir "$directory" --run-dir .run
