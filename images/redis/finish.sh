#!/usr/bin/env bash
# Promises: Redis' own user (uid 10002) owns the one directory it may write, /data. Runs inside the root being made.
set -euo pipefail
sed -i -E 's/^(redis:[^:]*):[0-9]+:[0-9]+:[^:]*:[^:]*:/\1:10002:10002::\/data:/' /etc/passwd
sed -i -E 's/^(redis:[^:]*):[0-9]+:/\1:10002:/' /etc/group
rm -rf /etc/redis /var/lib/redis /var/log/redis
install -d -o 10002 -g 10002 -m 700 /data
