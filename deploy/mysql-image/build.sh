#!/bin/bash
# Builds a Docker image of MySQL from Debian's packages, for machines that reach a Debian mirror and no registry of
# images. It behaves as the official image does (see entrypoint.sh). Usage: build.sh TAG

# shellcheck disable=SC2016 # the quoted $ are for apt-get and for the shells that mmdebstrap starts
set -euo pipefail
cd "$(dirname "$0")"

tag=${1:?usage: build.sh TAG}
suite=sid # the one Debian suite that carries mysql-server-core

# mirror: the machine's own Debian mirror, from apt's configuration.
mirror() {
	apt-get indextargets --format '$(ORIGIN) $(LABEL) $(REPO_URI)' 'Created-By: Packages' |
		awk '$1 == "Debian" && $2 == "Debian" { print $3; exit }'
}

../setup/packages.sh mmdebstrap
source_uri=$(mirror)
if [ -z "$source_uri" ]; then
	echo "apt on this machine knows no Debian mirror: run apt-get update, or pull an image of MySQL 8.4 and name it in ORBIT_TEST_MYSQL_IMAGE" >&2
	exit 1
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
{
	# The proxies that this machine's apt uses hold for the other suite too.
	apt-config dump Acquire | grep -E '^Acquire::(https?::|Check-Date)' || true
	# A mirror may be weeks behind, which a suite without releases marks as expired. The packages are signed all the same.
	echo 'Acquire::Check-Valid-Until "false";'
} >"$work/apt.conf"

# root_file_system: that of a machine with nothing but MySQL on it, as a tar archive.
root_file_system() {
	mmdebstrap --variant=minbase --include=mysql-server-core,mysql-client-core,mysql-common \
		--aptopt="$work/apt.conf" \
		--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
		--dpkgopt='path-exclude=/usr/share/locale/*' \
		--customize-hook='chroot "$1" useradd --system --user-group --home-dir /var/lib/mysql --shell /usr/sbin/nologin mysql' \
		--customize-hook='mkdir -p "$1/docker-entrypoint-initdb.d"' \
		--customize-hook='chroot "$1" install -d -m 750 -o mysql -g mysql /var/lib/mysql /var/lib/mysql-files /opt/mysql-template' \
		--customize-hook='copy-in docker.cnf /etc/mysql/conf.d' \
		--customize-hook='chroot "$1" mysqld --no-defaults --initialize-insecure --user=mysql --datadir=/opt/mysql-template' \
		--customize-hook='rm "$1/opt/mysql-template/auto.cnf"' \
		--customize-hook='upload entrypoint.sh /usr/local/bin/docker-entrypoint.sh' \
		--customize-hook='chmod 755 "$1/usr/local/bin/docker-entrypoint.sh"' \
		"$suite" - "$source_uri" 2>"$work/log"
}

echo "building $tag from the packages of Debian $suite: about a minute" >&2
# Tagged only when all of it is there: a broken archive imports as well.
if ! image=$(root_file_system |
	docker import \
		--change 'ENTRYPOINT ["docker-entrypoint.sh"]' \
		--change 'CMD ["mysqld"]' \
		--change 'EXPOSE 3306' \
		--change 'VOLUME /var/lib/mysql' \
		-); then
	echo "the root file system could not be made:" >&2
	tail -n 20 "$work/log" >&2
	exit 1
fi
docker tag "$image" "$tag"
