#!/usr/bin/env bash
# Promises: redis-server with the password of $REDISCLI_AUTH and the rest from redis.conf. The password travels by
# standard input only: in no argument list, no file, and not in the server's own environment.
set -euo pipefail
password=${REDISCLI_AUTH:-}
unset REDISCLI_AUTH
# It is also part of a URL and of a configuration line, so it may hold nothing that means something in either.
if [[ ! $password =~ ^[A-Za-z0-9_-]{16,128}$ ]]; then
  echo 'redis: REDIS_PASSWORD must be 16 to 128 letters, digits, - or _; make one with: openssl rand -hex 24' >&2
  exit 2
fi
# A here-string this short is a pipe (bash 5.1 and later): no file, and no child left for redis-server to inherit.
exec redis-server /etc/redis.conf - <<<"requirepass $password"
