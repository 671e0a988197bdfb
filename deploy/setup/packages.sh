#!/bin/bash
# Installs the named Debian packages that are missing. Where the user is not root, or apt is not there, it says what
# to install and fails. Usage: packages.sh NAME...
set -euo pipefail

missing=()
for package in "$@"; do
	if [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" != installed ]; then
		missing+=("$package")
	fi
done
if [ ${#missing[@]} -eq 0 ]; then
	exit 0
fi
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
	echo "install these first (as root on Debian it is done for you): ${missing[*]}" >&2
	exit 1
fi
echo "installing from Debian's packages: ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
{
	apt-get update -q
	apt-get install -q -y --no-install-recommends "${missing[@]}"
} >&2
