#!/usr/bin/env bash
# Promises: with-docker.sh COMMAND [ARG…] runs COMMAND with a Docker daemon that answers, and ends with its exit code.
# A daemon that runs already is used and left alone. Else one is started that knows gVisor (daemon.json), and stopped
# by pid when the last of the with-docker.sh that use it ends, also by Ctrl-C or TERM. No daemon to be had: exit 4.
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# One place for the whole host: the daemon runs as long as any checkout uses it, no matter which one started it.
if [[ $EUID -eq 0 ]]; then state=/run/cellblock-docker; else state=${XDG_RUNTIME_DIR:-$(dirname "$(dirname "$here")")/build}/cellblock-docker; fi

say() { printf 'with-docker: %s\n' "$*" >&2; }
fail() { say "$@"; exit 4; }
[[ $# -gt 0 ]] || { say 'usage: with-docker.sh COMMAND [ARG…]'; exit 2; }

as_root=()
if [[ $EUID -ne 0 ]]; then as_root=(sudo -n); fi
root() { ${as_root[@]+"${as_root[@]}"} "$@"; }

# For tests only: a second daemon, all of whose files lie beside the given socket, in a network namespace of its own
# (two daemons in one would fight over the bridge docker0).
dockerd_options=() apart=()
exec_root=/var/run/docker
if [[ -n ${CELLBLOCK_DOCKER_SOCKET:-} ]]; then
  private=$(dirname "$CELLBLOCK_DOCKER_SOCKET")
  state=$private/state exec_root=$private/exec
  export DOCKER_HOST=unix://$CELLBLOCK_DOCKER_SOCKET
  dockerd_options=(--host "$DOCKER_HOST" --data-root "$private/data" --exec-root "$exec_root")
  apart=(unshare --net)
fi
mkdir -p -m 700 "$state"

answers() { docker version >/dev/null 2>&1; }
knows_runsc() { docker info --format '{{range $name, $_ := .Runtimes}}{{$name}} {{end}}' 2>/dev/null | grep -qw runsc; }
pid_in() { root cat "$1" 2>/dev/null || true; }
is_alive() { [[ -n $1 ]] && root kill -0 "$1" 2>/dev/null; }
is_ours() {
  local pid
  pid=$(pid_in "$state/dockerd.pid")
  is_alive "$pid" && [[ $(root cat "/proc/$pid/comm") == dockerd ]]
}

start_daemon() {
  command -v dockerd >/dev/null || fail 'no Docker daemon answers and dockerd is not installed: run config/host/setup.sh'
  root true 2>/dev/null || fail 'no Docker daemon answers, and starting one takes root or sudo'
  if [[ -z ${DOCKER_HOST:-} ]] && root docker version >/dev/null 2>&1; then
    fail 'a Docker daemon runs, but you must not use it: join the group docker, or run this as root'
  fi
  if [[ -n ${DOCKER_HOST:-} && -z ${CELLBLOCK_DOCKER_SOCKET:-} ]]; then fail "no Docker daemon answers at DOCKER_HOST=$DOCKER_HOST"; fi
  if [[ $EUID -ne 0 ]]; then dockerd_options+=(--group "$(id -gn)"); fi
  root setsid ${apart[@]+"${apart[@]}"} dockerd --config-file "$here/daemon.json" --pidfile "$state/dockerd.pid" \
    ${dockerd_options[@]+"${dockerd_options[@]}"} </dev/null >"$state/dockerd.log" 2>&1 8>&- 9>&- &
  local starter=$! deadline=$((SECONDS + 30))
  until answers; do
    if [[ $SECONDS -ge $deadline ]] || ! kill -0 "$starter" 2>/dev/null; then
      say 'dockerd did not come up within 30 s; the end of its log:'
      tail -n 15 "$state/dockerd.log" >&2
      stop_daemon
      exit 4
    fi
    sleep 0.1
  done
  pid_in "$exec_root/containerd/containerd.pid" >"$state/containerd.pid"
}

# dockerd stops its containers and its containerd itself; whatever outlives it is killed, by pid.
stop_daemon() {
  local pid containerd deadline=$((SECONDS + 25))
  pid=$(pid_in "$state/dockerd.pid")
  containerd=$(pid_in "$state/containerd.pid")
  if is_alive "$pid"; then root kill -TERM "$pid"; fi
  while is_alive "$pid" && [[ $SECONDS -lt $deadline ]]; do sleep 0.1; done
  if is_alive "$pid"; then root kill -KILL "$pid"; fi
  if is_alive "$containerd" && [[ $(root cat "/proc/$containerd/comm") == containerd ]]; then root kill -KILL "$containerd"; fi
  root rm -f "$state/dockerd.pid" "$state/containerd.pid"
}

# Who starts or stops the daemon holds lock 9 for a moment; lock 8 is shared by all who use ours.
exec 9>"$state/lock" 8>"$state/users"
flock 9
started=
if ! answers; then
  start_daemon
  started=yes
fi
if ! knows_runsc; then
  say "warning: this Docker daemon does not know runsc, so jobs run under runc. Remedy: merge $here/daemon.json"
  say 'into /etc/docker/daemon.json and restart the daemon.'
fi
if [[ -z $started ]] && ! is_ours; then exec 8>&- 9>&- "$@"; fi
flock --shared 8
flock --unlock 9

# shellcheck disable=SC2317  # called by the trap below
leave() {
  trap '' INT TERM HUP
  flock 9
  flock --unlock 8
  # Nobody else uses it: the last user stops it, also if another started it.
  if flock --exclusive --nonblock 8; then stop_daemon; fi
}
trap leave EXIT
trap : INT  # a terminal sends Ctrl-C to COMMAND too: wait for it
trap 'kill -TERM "$child" 2>/dev/null || true' TERM HUP

# A background job, so a signal is acted on at once; bash would have it ignore Ctrl-C, env undoes that.
env --default-signal=INT --default-signal=QUIT "$@" <&0 8>&- 9>&- &
child=$!
code=0
wait "$child" || code=$?
while kill -0 "$child" 2>/dev/null; do
  code=0
  wait "$child" || code=$?
done
exit "$code"
