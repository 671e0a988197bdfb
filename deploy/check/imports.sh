#!/bin/bash
# Fails where generated code imports more of this module than the leaf package and generated code. The linter leaves
# generated files out; all other import rules are in .golangci.yml.
set -euo pipefail
cd "$(dirname "$0")/../.."

module=$(go list -m)
wrong=$(go list -f '{{range .Imports}}{{$.ImportPath}} imports {{.}}{{"\n"}}{{end}}' ./gen/... |
	awk -v module="$module" '$3 ~ "^" module "/" && $3 !~ "^" module "/gen/"')
if [ -n "$wrong" ]; then
	echo "$wrong" >&2
	echo "generated code may import the leaf package $module only" >&2
	exit 1
fi
