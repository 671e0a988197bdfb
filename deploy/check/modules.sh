#!/bin/bash
# Fails where a go.mod or go.sum says more or less than its module's code needs.
set -euo pipefail
cd "$(dirname "$0")/../.."

failed=
for module in . sdk/go; do
	if ! go -C "$module" mod tidy -diff >/dev/null; then
		echo "$module/go.mod or go.sum: run go mod tidy there" >&2
		failed=1
	fi
done
[ -z "$failed" ]
