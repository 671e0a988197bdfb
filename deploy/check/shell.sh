#!/bin/bash
# Checks every shell script of the repository.
set -euo pipefail
cd "$(dirname "$0")/../.."

mapfile -t scripts < <(git ls-files --cached --others --exclude-standard '*.sh' .ci/run)
if ! command -v shellcheck >/dev/null; then
	deploy/setup/packages.sh shellcheck
fi
shellcheck "${scripts[@]}"
