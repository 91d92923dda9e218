"""What a Redis server says it has done: its own counters, without what reading them costs; and MONITOR.

``reads``, the server's total_reads_processed, are the round trips: one for each time that it found bytes of a
client. Commands that arrive together, as those of a pipeline do, are read together and count once. A request
of more than 16 kB would be read in parts; none here is.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping

from redis import Redis

Figures = dict[str, float]
#: By (whose, name).
Commands = Mapping[tuple[str, str], float]
#: Whose what scripts call is.
LUA = "lua"

_SECTIONS = ("stats", "commandstats", "cpu", "memory", "persistence")
_SCRIPT_CALLS = ("evalsha", "eval", "fcall")
#: What moves by itself; everything else stands still while nobody speaks to the server.
_MOVING = ("seconds", "cpu_us", "main_cpu_us", "memory")
YARDSTICK_CALLS = 30


class Meter:
    """Reads a server's counters. Two readings differ by what others did between them."""

    def __init__(self, url: str) -> None:
        self.redis = Redis.from_url(url, decode_responses=True, protocol=2)
        self.redis.set_response_callback("INFO", str)  # its length counts
        self._readings = 0
        self._told_bytes = 0
        request = ("INFO", *_SECTIONS)
        self._request_bytes = len(f"*{len(request)}\r\n") + sum(len(_bulk(word)) for word in request)
        self.read()
        still = difference(self.read(), self.read())
        moved = {name: value for name, value in still.items() if value and name not in _MOVING}
        assert not moved, f"readings count themselves: {moved}"

    def close(self) -> None:
        self.redis.close()

    def read(self) -> Figures:
        """By now, since the server's start."""
        text = str(self.redis.info(*_SECTIONS))
        said = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
        scripts = [_of_command(said.get(f"cmdstat_{name}", "")) for name in _SCRIPT_CALLS]
        self._readings += 1
        figures = {
            "seconds": time.monotonic(),
            "commands": int(said["total_commands_processed"]) - self._readings,
            "scripts": sum(one.get("calls", 0) for one in scripts),
            "script_us": sum(one.get("usec", 0) for one in scripts),
            "reads": int(said["total_reads_processed"]) - self._readings,
            "bytes_in": int(said["total_net_input_bytes"]) - self._readings * self._request_bytes,
            "bytes_out": int(said["total_net_output_bytes"]) - self._told_bytes,
            "aof_bytes": int(said["aof_current_size"]) + int(said["aof_buffer_length"]),
            "cpu_us": 1e6 * (float(said["used_cpu_user"]) + float(said["used_cpu_sys"])),
            "main_cpu_us": 1e6
            * (float(said["used_cpu_user_main_thread"]) + float(said["used_cpu_sys_main_thread"])),
            "memory": int(said["used_memory"])
            - int(said["mem_clients_normal"])
            - int(said["mem_aof_buffer"]),
        }
        self._told_bytes += len(_bulk(text))
        return figures

    def yardstick(self) -> Figures:
        """A script that always does the same: how fast this machine is just now."""
        script = f"for _ = 1, {YARDSTICK_CALLS} do redis.call('PING') end"
        return measured(self, lambda: self.redis.eval(script, 0))

    def counts_inner_calls(self) -> bool:
        """Whether total_commands_processed counts what scripts call, as commandstats does."""
        return self.yardstick()["commands"] == 1 + YARDSTICK_CALLS

    def watched(self, work: Callable[[], object]) -> tuple[Commands, Figures]:
        """Every command that MONITOR shows while the work is done, and what the counters say of it.

        MONITOR's own words are in ``bytes_out`` and in the CPU time. Whose: the user of the connection, ``?``
        if that is closed by now, LUA inside scripts. Commands of a pipeline or a transaction are counted one
        by one.
        """
        found: Counter[tuple[str, str]] = Counter()
        last = uuid.uuid4().hex
        with self.redis.monitor() as monitor:  # type: ignore[no-untyped-call]
            counted = measured(self, work)
            clients = self.redis.client_list()
            self.redis.echo(last)
            users = {client["addr"]: client["user"] for client in clients}
            while last not in (said := monitor.next_command())["command"]:
                address = f"{said['client_address']}:{said['client_port']}"
                whose = LUA if said["client_type"] == "lua" else users.get(address, "?")
                found[whose, said["command"].split(" ", 1)[0].upper()] += 1
        del found["default", "INFO"], found["default", "CLIENT"]  # ours
        return found, counted


def _bulk(text: str) -> bytes:
    """As it travels."""
    data = text.encode()
    return b"$%d\r\n%b\r\n" % (len(data), data)


def _of_command(line: str) -> dict[str, float]:
    return {name: float(value) for name, value in (part.split("=") for part in line.split(",") if part)}


def difference(later: Mapping[str, float], earlier: Mapping[str, float]) -> Figures:
    """What happened between two readings."""
    return {name: value - earlier[name] for name, value in later.items()}


def each(found: Mapping[str, float], count: float) -> Figures:
    """The cost of one, where ``count`` were measured together."""
    return {name: value / count for name, value in found.items()}


def measured(meter: Meter, work: Callable[[], object]) -> Figures:
    """What the work made the server do."""
    before = meter.read()
    work()
    return difference(meter.read(), before)
