#!/bin/bash
# Fails unless gen/ and sdk/go/api/ are what `make gen` makes of the sources. It works on a copy, so that what is there
# stays as it is.
set -euo pipefail
cd "$(dirname "$0")/../.."

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git ls-files --cached --others --exclude-standard -z |
	tar --create --null --files-from=- --ignore-failed-read --warning=no-failed-read |
	tar --extract --directory="$copy"
ln -s "$PWD/bin" "$copy/bin"

make --no-print-directory --silent -C "$copy" gen
failed=
for generated in gen sdk/go/api; do
	if ! diff --recursive --brief "$generated" "$copy/$generated"; then
		failed=1
	fi
done
if [ -n "$failed" ]; then
	echo "generated code is not that of the sources: run make gen" >&2
	exit 1
fi
