"""The bounds on a sandbox besides its profile, the same in every way of making one."""

from __future__ import annotations

from cellblock_workers.zygote.root import MASKED_FILES, MASKED_FOLDERS

#: The guest, where it counts among the processes of the job's user.
GUEST_PIDS = 1
#: What else a sandbox's cgroup counts: the guest, and the thread that writes the job's output
#: (guest/output.py).
OWN_PIDS = GUEST_PIDS + 1
#: Under runsc the host's process limit counts the sentry's own threads, up to eight for each process of the
#: job (measured, docs/adr/0004). Too tight a limit crashes the sentry: RLIMIT_NPROC inside holds the job.
_SENTRY_PIDS, _SENTRY_PIDS_EACH = 400, 10
#: The period for quotas of processor time.
CPU_PERIOD_US = 100_000
#: Processors that a container may use while it starts. Otherwise a job that asked for a twentieth of one
#: would hold a starter for many seconds, and every job behind it. Nothing of the job runs yet.
START_CPUS = 1.0
#: Files in /tmp: an empty one costs the host about a kibibyte that no size option counts.
TMP_INODES = 16_384
#: Files in /dev/shm: each lock and each queue of multiprocessing takes several.
SHM_INODES = 4096
#: Pseudo terminals of one sandbox: the kernel has some 3,000 for all sandboxes together.
TERMINALS = 16
TERMINAL_OPTIONS = ("nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", f"max={TERMINALS}")
#: The guest's: it gives up root, and kills the job. Dropped with the uid before the job starts.
CAPABILITIES = ("SETUID", "SETGID", "KILL")
#: And under gVisor, inside, those of the guest of a series: it mounts each job's root, and frees it.
SERIES_CAPABILITIES = ("SYS_ADMIN", "SYS_CHROOT")
#: The limits of each process, soft and hard, by the names of setrlimit(2). SIGPENDING, which the kernel
#: counts by user, bounds the signals that wait, and the timers.
RLIMITS = {"NOFILE": 1024, "CORE": 0, "MEMLOCK": 65_536, "SIGPENDING": 1024}
#: The files and folders of /proc that tell of the whole host.
MASKED = tuple(f"/proc/{name}" for name in (*MASKED_FILES, *MASKED_FOLDERS))


def sentry_pids(pids: int) -> int:
    """The host's process limit for a sandbox of gVisor whose job may have ``pids`` processes."""
    return _SENTRY_PIDS + _SENTRY_PIDS_EACH * pids


def tmpfs_options(size_bytes: int, inodes: int) -> tuple[str, ...]:
    """The mount options of a writable place in memory, in a container: bounded, and nothing in it can be
    run."""
    flags = ("rw", "nosuid", "nodev", "noexec", "mode=1777")
    return (*flags, f"nr_inodes={inodes}", f"size={size_bytes}")
