#!/bin/bash
# Fails where a go.mod or go.sum says more or less than its module's code needs.
set -euo pipefail
cd "$(dirname "$0")/../.."

failed=
while read -r module; do
	module=$(dirname "$module")
	if ! go -C "$module" mod tidy -diff >/dev/null; then
		echo "$module/go.mod or go.sum: run go mod tidy there" >&2
		failed=1
	fi
done < <(git ls-files 'go.mod' '*/go.mod')
[ -z "$failed" ]
