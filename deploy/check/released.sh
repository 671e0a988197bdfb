#!/bin/bash
# Fails where openapi/orbit.yaml breaks a client of the released document.
set -euo pipefail
cd "$(dirname "$0")/../.."

if [ ! -e openapi/released.yaml ]; then
	echo "no released document yet: nothing to break"
	exit 0
fi
bin/oasdiff breaking --fail-on ERR openapi/released.yaml openapi/orbit.yaml
