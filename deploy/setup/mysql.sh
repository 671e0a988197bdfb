#!/bin/bash
# The MySQL server that `make run` uses.
#   mysql.sh start   makes sure that it runs and prints its DSN: ORBIT_DSN where that is set, else a container of ours
#   mysql.sh stop    stops that container; its data stay
#   mysql.sh remove  removes that container and its data
set -euo pipefail
cd "$(dirname "$0")"

# Each checkout has its own, named for its path.
name=${ORBIT_MYSQL_CONTAINER:-orbit-mysql-$(cd ../.. && pwd -P | cksum | cut -d ' ' -f 1)}
# The container listens on the loopback interface only.
password=orbit

sql() {
	docker exec --env MYSQL_PWD="$password" "$name" mysql --host=127.0.0.1 --user=root --silent --skip-column-names -e "$1"
}

wait_until_ready() {
	local i
	for ((i = 0; i < 600; i++)); do
		if sql 'SELECT 1' >/dev/null 2>&1; then
			return 0
		fi
		sleep 0.1
	done
	echo "MySQL did not become ready:" >&2
	sql 'SELECT 1' >&2 || true
	echo "the end of its log:" >&2
	docker logs --tail 20 "$name" >&2
	return 1
}

start() {
	local image port
	if [ -n "${ORBIT_DSN:-}" ]; then
		echo "MySQL: the server that ORBIT_DSN names" >&2
		echo "$ORBIT_DSN"
		return
	fi
	image=$(./mysql-image.sh)
	if docker container inspect "$name" >/dev/null 2>&1; then
		docker start "$name" >/dev/null
	else
		docker run --detach --name "$name" --publish 127.0.0.1::3306 --stop-timeout 60 \
			--env MYSQL_ROOT_PASSWORD="$password" --env MYSQL_DATABASE=orbit \
			"$image" --log-bin-trust-function-creators=1 --max-connections=500 >/dev/null
	fi
	wait_until_ready
	port=$(docker port "$name" 3306/tcp | sed -n '1s/.*://p')
	echo "MySQL $(sql 'SELECT VERSION()') in container $name on 127.0.0.1:$port" >&2
	echo "root:$password@tcp(127.0.0.1:$port)/orbit"
}

container_exists() {
	command -v docker >/dev/null && docker container inspect "$name" >/dev/null 2>&1
}

case ${1:-} in
start) start ;;
stop) if container_exists; then docker stop "$name" >/dev/null; fi ;;
remove) if container_exists; then docker rm --force --volumes "$name" >/dev/null; fi ;;
*)
	echo "usage: mysql.sh start|stop|remove" >&2
	exit 2
	;;
esac
