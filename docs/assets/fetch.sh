#!/bin/sh
# Fetches the renderer of the API reference from the npm registry: the single file that the package ships, and its licences.
# A new version: change the two lines below, run this, look at the page, commit.
set -eu
version=2.5.4
integrity=sha512-M6jWhG1qoBnH6TFmzJnstyCZ87HmOY/UzDm78mHiYihEdlV/YcS9ogOo1NlElnJMeLsyxHFe2yFc4sNjHTrABQ==

here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
npm pack --silent "redoc@$version" >/dev/null
got=sha512-$(openssl dgst -sha512 -binary "redoc-$version.tgz" | openssl base64 -A)
if [ "$got" != "$integrity" ]; then
	echo "redoc $version: the package is $got, want $integrity" >&2
	exit 1
fi
tar xzf "redoc-$version.tgz"
cp package/bundles/redoc.standalone.js "$here/redoc.standalone.js"
cp package/bundles/redoc.standalone.js.LICENSE.txt "$here/redoc.standalone.js.LICENSE.txt"
cp package/LICENSE "$here/redoc.LICENSE.txt"
