"""The same image without a sandbox: its root by chroot, as an ordinary user, under no control of ours.

Its own mounts and its own process ids, so that nothing of it stays behind; the host's devices, its network
and its names. What fails here is no sandbox's doing, and is not asked of one.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

#: With a name and a home, as a user has on a machine of their own. Tests take nobody's for another.
UID = 1000
_USER = f"user:x:{UID}:{UID}:user:/tmp/work:/bin/sh"
_GROUP = f"user:x:{UID}:"
#: As a job has them.
ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "HOME": "/tmp/work",
    "USER": "user",
}
_ENTER = """
mount --make-rprivate /
mount --rbind "$ROOT" "$PLACE"
mount -o remount,bind,ro "$PLACE"
mount --rbind /dev "$PLACE/dev"
mount -t tmpfs -o mode=1777 tmpfs "$PLACE/dev/shm"
mount -t proc proc "$PLACE/proc"
mount -t tmpfs -o mode=1777,size=2g tmpfs "$PLACE/tmp"
mount --bind /etc/hosts "$PLACE/etc/hosts"
mkdir "$PLACE/tmp/work" "$PLACE/tmp/names"
for name in passwd group; do
  cp "$PLACE/etc/$name" "$PLACE/tmp/names/"
  mount --bind "$PLACE/tmp/names/$name" "$PLACE/etc/$name"
done
echo "$USER_LINE" >>"$PLACE/etc/passwd"
echo "$GROUP_LINE" >>"$PLACE/etc/group"
cp -r "$FILES/." "$PLACE/tmp/work"
chown -R {uid}:{uid} "$PLACE/tmp/work"
code=0
chroot --userspec={uid}:{uid} --groups={uid} "$PLACE" \\
  /bin/sh -c 'cd /tmp/work && exec env -i "$@"' sh {words} || code=$?
cd "$PLACE/tmp/work" && for name in $KEEP; do [ ! -f "$name" ] || cp -- "$name" "$FILES/"; done
exit $code
"""


def run_bare(
    root: Path,
    folder: Path,
    command: Sequence[str],
    *,
    keep: Sequence[str] = (),
    stdin: bytes = b"",
    timeout_s: float,
) -> subprocess.CompletedProcess[bytes]:
    """Run a command with a copy of this folder as its work folder; the files to keep are put back into it."""
    place = folder.with_name(f"{folder.name}.root")
    place.mkdir(exist_ok=True)
    words = [f"{name}={value}" for name, value in ENVIRONMENT.items()]
    script = "set -eu\n" + _ENTER.format(uid=UID, words=shlex.join([*words, *command]))
    variables = {
        "ROOT": str(root.resolve()),
        "PLACE": str(place),
        "FILES": str(folder),
        "KEEP": " ".join(keep),
        "USER_LINE": _USER,
        "GROUP_LINE": _GROUP,
    }
    environment = {"PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin", **variables}
    entering = ["unshare", "--mount", "--pid", "--ipc", "--fork", "--kill-child", "sh", "-c", script]
    pipe = subprocess.PIPE
    try:
        with subprocess.Popen(entering, env=environment, stdin=pipe, stdout=pipe, stderr=pipe) as process:
            for own in (process.stdin, process.stdout, process.stderr):
                assert own is not None
                os.fchown(own.fileno(), UID, UID)  # a user's own: else they cannot be opened by name
            try:
                stdout, stderr = process.communicate(stdin, timeout=timeout_s)
            except BaseException:
                process.kill()
                raise
        return subprocess.CompletedProcess(list(command), process.returncode, stdout, stderr)
    finally:
        place.rmdir()
