#!/bin/bash
# Starts mysqld as the official image's entry point does: the same variables (each also as NAME_FILE), the same
# arguments, the same log line when it is ready. It does not run /docker-entrypoint-initdb.d and says so.
set -euo pipefail

datadir=/var/lib/mysql
init_file=/run/mysqld/init.sql

fail() {
	echo "entrypoint: $*" >&2
	exit 1
}

# variable NAME: the value of NAME, or the content of the file that NAME_FILE names.
variable() {
	local file_name="$1_FILE"
	if [ -n "${!file_name:-}" ]; then
		cat "${!file_name}"
	else
		printf %s "${!1:-}"
	fi
}

# literal VALUE: VALUE in quotes, where SQL takes no expression.
literal() {
	local v=${1//\\/\\\\}
	printf "'%s'" "${v//\'/\\\'}"
}

identifier() {
	# shellcheck disable=SC2016 # these backticks are SQL
	printf '`%s`' "${1//\`/\`\`}"
}

# init_statements: what the first start does to the empty server, one statement a line.
init_statements() {
	local root user password database host
	root=$(variable MYSQL_ROOT_PASSWORD)
	user=$(variable MYSQL_USER)
	password=$(variable MYSQL_PASSWORD)
	database=$(variable MYSQL_DATABASE)
	host=${MYSQL_ROOT_HOST:-%}

	if [ -z "$root" ] && [ -n "${MYSQL_RANDOM_ROOT_PASSWORD:-}" ]; then
		root=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
		echo "GENERATED ROOT PASSWORD: $root" >&2
	fi
	if [ -z "$root" ] && [ -z "${MYSQL_ALLOW_EMPTY_PASSWORD:-}" ]; then
		fail "set MYSQL_ROOT_PASSWORD, MYSQL_ALLOW_EMPTY_PASSWORD or MYSQL_RANDOM_ROOT_PASSWORD"
	fi
	if [ "$user" = root ]; then
		fail "MYSQL_USER cannot be root: set MYSQL_ROOT_PASSWORD instead"
	fi

	echo "ALTER USER 'root'@'localhost' IDENTIFIED BY $(literal "$root");"
	if [ "$host" != localhost ]; then
		echo "CREATE USER 'root'@$(literal "$host") IDENTIFIED BY $(literal "$root");"
		echo "GRANT ALL ON *.* TO 'root'@$(literal "$host") WITH GRANT OPTION;"
	fi
	if [ -n "$database" ]; then
		echo "CREATE DATABASE IF NOT EXISTS $(identifier "$database");"
	fi
	if [ -n "$user" ] && [ -n "$password" ]; then
		echo "CREATE USER $(literal "$user")@'%' IDENTIFIED BY $(literal "$password");"
		if [ -n "$database" ]; then
			echo "GRANT ALL ON $(identifier "${database//_/\\_}").* TO $(literal "$user")@'%';"
		fi
	fi
}

# prepare_data: makes the directories and fills an empty data directory from the template made when the image was built.
prepare_data() {
	install -d -o mysql -g mysql /run/mysqld "$datadir"
	if [ -d "$datadir/mysql" ]; then
		return
	fi
	if [ -n "$(ls /docker-entrypoint-initdb.d 2>/dev/null)" ]; then
		fail "this image does not run /docker-entrypoint-initdb.d"
	fi
	(umask 077 && init_statements >"$init_file")
	chown mysql:mysql "$init_file"
	cp -a /opt/mysql-template/. "$datadir/"
}

# official_log: names the server as the official image does in the line that says it is ready, and removes the
# passwords' file once it has been read.
official_log() {
	local line
	while IFS= read -r line; do
		if [[ $line == *"ready for connections"* ]]; then
			rm -f "$init_file"
			line=${line/(Debian)/MySQL Community Server - GPL}
		fi
		printf '%s\n' "$line"
	done
}

if [ $# -eq 0 ] || [ "${1#-}" != "$1" ]; then
	set -- mysqld "$@"
fi
if [ "$1" != mysqld ]; then
	exec "$@"
fi
shift

prepare_data
if [ -f "$init_file" ]; then
	set -- "--init-file=$init_file" "$@"
fi
# mysqld takes the place of this shell, so that the engine's signals reach it.
exec mysqld --user=mysql "$@" 2> >(official_log >&2)
