"""Users of Redis, one for each kind of process: each does its work, and little else."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from celery.worker.control import Panel
from redis import Redis
from redis.exceptions import NoPermissionError, RedisError, ResponseError

from cellblock import Client, JobSpec, JobState, NotConfigured, Outcome
from cellblock.contract.evaluations import Evaluation, FunctionCheck, Trial
from cellblock.ledger.access import new_access
from cellblock.ledger.keys import Keys
from cellblock.queue import QUEUE, queue_key
from cellblock_config import load_settings
from cellblock_workers.broker import create_celery
from cellblock_workers.worker.remote_control import ANSWERED
from faults.test_redis_for_real import server
from faults.test_webhook_delivery import receiver
from parts import NAMESPACES, cellblock, free_port, launcher_process, wait_until, worker_process
from suite.warm import CELLBLOCK, WarmPopen

pytestmark = pytest.mark.no_rerun

USERS = ("producer", "worker", "webhooks", "archiver", "monitor", "operator", "backup")


@dataclass(frozen=True)
class Store:
    """A server with the file that the command has written, and somebody who may do everything."""

    port: int
    passwords: dict[str, str]

    def url(self, user: str) -> str:
        return f"redis://cellblock-{user}:{self.passwords[f'cellblock-{user}']}@127.0.0.1:{self.port}/0"

    def connect(self, user: str) -> Redis:
        url = self.url(user) if user != "root" else f"redis://root:root@127.0.0.1:{self.port}/0"
        return Redis.from_url(url, decode_responses=True)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    folder = tmp_path_factory.mktemp("users")
    file = folder / "users.acl"
    made = cellblock("store-users", "new", str(file))
    assert made.returncode == 0, made.stderr
    passwords = dict(line.split(" ") for line in made.stdout.splitlines())
    assert not [one for one in passwords.values() if one in file.read_text()], "digests only"
    with file.open("a") as acl:
        acl.write("user root on >root ~* &* +@all\n")
    port = free_port()
    with server(
        folder / "redis", f"port {port}", f"aclfile {file}", "acllog-max-len 1000", "enable-debug-command yes"
    ):
        found = Store(port, passwords)
        with closing(found.connect("root")) as root:

            def answers() -> bool:
                try:
                    return bool(root.ping())
                except RedisError:
                    return False

            wait_until(answers, what="the store")
        yield found


@pytest.mark.long("every process of a fleet works for several rounds")
def test_a_fleet_does_its_work_as_these_users_and_is_refused_nothing(store: Store, tmp_path: Path) -> None:
    with ExitStack() as stack, receiver() as receives:
        root = stack.enter_context(closing(store.connect("root")))
        root.execute_command("ACL LOG RESET")  # type: ignore[no-untyped-call]
        socket, _ = stack.enter_context(launcher_process(tmp_path, **NAMESPACES))
        (tmp_path / "archive").mkdir()
        archive = {
            "CELLBLOCK_ARCHIVE_URL": f"sqlite:///{tmp_path}/archive/jobs.db",
            "CELLBLOCK_ARCHIVE_HOT_S": "0",
        }
        worker = {"CELLBLOCK_WORKER_DRAIN_S": "1", **archive, **NAMESPACES}
        stack.enter_context(worker_process(tmp_path, store.url("worker"), socket, **worker))
        hooks = {
            "CELLBLOCK_WEBHOOKS_URLS": f'["{receives.url}"]',
            "CELLBLOCK_WEBHOOKS_SECRET": "of this test alone, and long enough",
            "CELLBLOCK_WEBHOOKS_ALLOW_PRIVATE": "true",
        }
        watch = {"CELLBLOCK_MONITOR_PASSWORD": "x" * 20, "CELLBLOCK_MONITOR_PORT": str(free_port())}
        for user, arguments, more in (
            ("webhooks", ("webhooks", "run"), hooks),
            ("monitor", ("monitor",), watch),
            ("archiver", ("archiver",), archive),
        ):
            log = stack.enter_context((tmp_path / f"{user}.log").open("wb"))
            environment = {**os.environ, "CELLBLOCK_REDIS_URL": store.url(user), **more}
            process = WarmPopen([CELLBLOCK, *arguments], env=environment, stdout=log, stderr=log)
            stack.callback(process.wait, timeout=30)
            stack.callback(process.kill)
        url = archive["CELLBLOCK_ARCHIVE_URL"]
        settings = load_settings(redis={"url": store.url("producer")}, archive={"url": url})
        client = stack.enter_context(Client(settings=settings))
        keyed = _use(client)
        wait_until(lambda: not root.exists(client._ledger.keys.job(keyed)), 30, "a job leaving the store")
        assert client.result(keyed, timeout_s=5).stdout == "42\n"
        assert client.submit(JobSpec(code="print(6*7)", idempotency_key="once")).id == keyed
        root.delete(client._ledger.keys.upkeep)  # and the leader begins anew, under another epoch
        wait_until(lambda: receives.came, what="a webhook")
        wait_until(root.pubsub_numpat, what="Flower hearing events")
        operator = {"CELLBLOCK_REDIS_URL": store.url("operator")}
        for words in (
            ("status",),
            ("dead", "list"),
            ("usage",),
            ("plans", "set", "timeout_s", "20", "--tenant", "acme"),
            ("plans", "audit"),
            ("api-key", "create", "--tenant", "acme"),
            ("webhooks", "dead"),
            ("events",),
        ):
            said = cellblock(*words, **operator)
            assert said.returncode == 0, (words, said.stderr)
        keeper = {"CELLBLOCK_REDIS_URL": store.url("backup")}
        said = cellblock("store", "backup", str(tmp_path / "backup"), **keeper)
        assert said.returncode == 0, said.stderr
        refused = {(one["username"], one["reason"], one["object"]) for one in root.acl_log()}
        assert not refused, refused


def _use(client: Client) -> str:
    """A job, one twice under a key, one that is cancelled, an evaluation, events, counts. Which was first."""
    job = client.submit(JobSpec(code="print(6*7)", idempotency_key="once"))
    assert job.result(timeout_s=30).stdout == "42\n"
    assert client.submit(JobSpec(code="print(6*7)", idempotency_key="once")).id == job.id
    slow = client.submit(JobSpec(code="import time; time.sleep(20)"))
    wait_until(lambda: slow.status().state is JobState.RUNNING, what="a running job")
    slow.cancel()
    assert slow.result(timeout_s=30).outcome is Outcome.CANCELLED
    check = FunctionCheck(functions=("f",), tests="assert f() == 1")
    trial = Trial(id="a", source="def f(): return 1", check=0)
    judged = client.submit(JobSpec(evaluation=Evaluation(checks=(check,), trials=(trial,))))
    assert [one.verdict.value for one in judged.result(timeout_s=60).trials] == ["passed"]
    assert client.counts().workers == 1
    assert client.events(group="billing")
    return job.id


SEP = "\x06\x16"  #: kombu's, between the parts of a binding
#: Every command of Celery's remote control that a worker of this fleet does not answer, with what would hurt.
ORDERS: dict[str, dict[str, object]] = {
    "add_consumer": {"queue": "celery"},
    "autoscale": {"max": 1, "min": 0},
    "cancel_consumer": {"queue": "cellblock.jobs"},
    "conf": {},
    "disable_events": {},
    **{f"dump_{what}": {} for what in ("active", "conf", "reserved", "revoked", "schedule", "tasks")},
    "enable_events": {},
    "election": {"id": "1", "topic": "x", "action": None},
    "heartbeat": {},
    "memdump": {},
    "memsample": {},
    "objgraph": {},
    "pool_grow": {"n": 100},
    "pool_restart": {},
    "pool_shrink": {"n": 100},
    "query_task": {"ids": ["1"]},
    "rate_limit": {"task_name": "cellblock.run", "rate_limit": "1/h"},
    "report": {},
    "revoke": {"task_id": "<ids>"},
    "revoke_by_stamped_headers": {"headers": {"cellblock": "1"}},
    "terminate": {"signal": "KILL", "task_id": "<ids>"},
    "time_limit": {"task_name": "cellblock.run", "hard": 0.001},
    "shutdown": {},
}


@pytest.mark.long("what is not answered is waited for")
def test_monitor_asks_workers_and_stops_no_job(store: Store, tmp_path: Path) -> None:
    with ExitStack() as stack:
        socket, _ = stack.enter_context(launcher_process(tmp_path, **NAMESPACES))
        environment = {"CELLBLOCK_WORKER_CONCURRENCY": "1", **NAMESPACES}
        stack.enter_context(worker_process(tmp_path, store.url("worker"), socket, **environment))
        client = stack.enter_context(Client(store.url("producer")))
        client.submit(JobSpec(code="0")).result(timeout_s=60)
        monitor = create_celery(load_settings(redis={"url": store.url("monitor")}))
        stack.callback(monitor.close)
        long = client.submit(JobSpec(code="import time; time.sleep(4)"))
        wait_until(lambda: long.status().state is JobState.RUNNING, what="a worker that is busy")
        jobs = [client.submit(JobSpec(code=f"print({number})")) for number in range(3)]
        ids = [job.id for job in jobs]

        def ask(command: str, **arguments: object) -> object:
            answers = monitor.control.broadcast(command, arguments=arguments, reply=True, limit=1, timeout=10)
            (answer,) = (answer for worker in answers for answer in worker.values())
            return answer

        assert set(ORDERS) == set(Panel.data) - ANSWERED, "another version of Celery has other commands"
        told = ask("hello", from_node="cellblock@monitor", revoked=dict.fromkeys(ids, 2e9))
        assert isinstance(told, dict)
        assert told["revoked"] == []
        assert ask("revoked") == []
        for command, arguments in ORDERS.items():
            given = {name: ids if value == "<ids>" else value for name, value in arguments.items()}
            refused = ask(command, **given)
            assert isinstance(refused, dict)
            assert list(refused) == ["error"], command
        named = str(ask("registered", taskinfoitems=["request"]))
        assert "request" not in named, "it tells names alone, as Flower asks for them"
        # An answer into the queue of jobs: by its name, or by a binding, which this user may write.
        reply_exchange = monitor.control.mailbox.reply_exchange.name
        bound = f"{{cellblock}}:broker:_kombu.binding.{reply_exchange}"
        stack.enter_context(closing(store.connect("monitor"))).sadd(bound, f"mine{SEP}{SEP}{QUEUE}")
        for exchange, routing_key in (("", QUEUE), (reply_exchange, "mine")):
            message: dict[str, object] = {"method": "ping", "destination": None, "ticket": "1"}
            with monitor.connection_for_write() as connection:
                connection.Producer().publish(
                    {**message, "reply_to": {"exchange": exchange, "routing_key": routing_key}},
                    exchange=monitor.control.mailbox.exchange.name,
                    declare=[monitor.control.mailbox.exchange],
                    serializer="json",
                )
        ask("ping")  # a worker answers in turn
        root = stack.enter_context(closing(store.connect("root")))
        waiting = root.lrange(queue_key(load_settings()), 0, -1)
        assert [one for one in waiting if not any(job_id in one for job_id in ids)] == []
        results = [job.result(timeout_s=60) for job in (long, *jobs)]
        assert [result.outcome for result in results] == [Outcome.OK] * 4


FOR_NOBODY = (
    "FLUSHALL",
    "FLUSHDB",
    "CONFIG GET *",
    "CONFIG SET appendonly no",
    "KEYS *",
    "DEBUG SLEEP 0",
    "SHUTDOWN NOSAVE",
    "SAVE",
    "MONITOR",
    "ACL LIST",
    "ACL SETUSER mine on nopass ~* +@all",
    "CLIENT KILL TYPE normal",
    "REPLICAOF NO ONE",
    "MODULE LIST",
    "SCRIPT FLUSH",
    "FUNCTION LIST",
    "SWAPDB 0 1",
    "GET other:secret",
    "SET other:secret 1",
    "RANDOMKEY",
)


@pytest.mark.parametrize("user", USERS)
def test_no_user_has_the_server_or_the_keys_of_others(store: Store, user: str) -> None:
    with closing(store.connect(user)) as redis:
        assert redis.ping()
        for command in FOR_NOBODY:
            with pytest.raises(NoPermissionError):
                redis.execute_command(*command.split())  # type: ignore[no-untyped-call]
        script = "return redis.call('GET', 'other:secret')"
        with pytest.raises((NoPermissionError, ResponseError), match=r"permissions|can't"):
            redis.evalsha(redis.script_load(script), 0)
        if user != "monitor":  # what a script could not reach by its text, it cannot by a name it makes up
            with pytest.raises((NoPermissionError, ResponseError), match=r"permissions|can't"):
                redis.evalsha(redis.script_load("return redis.call('FLUSH' .. 'ALL')"), 0)
    with closing(Redis(port=store.port)) as nobody, pytest.raises(RedisError):
        nobody.ping()


@pytest.mark.parametrize(
    ("user", "command"),
    [
        ("producer", "HSET {cellblock}:api-keys mine all"),
        ("producer", "HSET {cellblock}:governance - x"),
        ("producer", "DEL {cellblock}:audit"),
        ("producer", "HGETALL {cellblock}:webhooks:items"),
        ("producer", "SCAN 0"),
        ("worker", "HGETALL {cellblock}:api-keys"),
        ("worker", "HSET {cellblock}:governance - x"),
        ("worker", "XRANGE {cellblock}:audit - +"),
        ("archiver", "GET {cellblock}:idempotency:1:acme:k"),
        ("webhooks", "GET {cellblock}:spec:1"),
        ("webhooks", "GET {cellblock}:result:1"),
        ("webhooks", "HSET {cellblock}:job:1 state succeeded"),
        ("webhooks", "LPUSH {cellblock}:broker:cellblock.jobs x"),
        ("monitor", "GET {cellblock}:spec:1"),
        ("monitor", "GET {cellblock}:result:1"),
        ("monitor", "HGETALL {cellblock}:job:1"),
        ("monitor", "LPUSH {cellblock}:broker:cellblock.jobs x"),
        ("monitor", "DEL {cellblock}:broker:cellblock.jobs"),
        ("monitor", "PUBLISH {cellblock}:control 1"),
        ("monitor", "SUBSCRIBE {cellblock}:done:1"),
    ],
)
def test_each_user_is_kept_from_what_is_not_its(store: Store, user: str, command: str) -> None:
    with closing(store.connect(user)) as redis, pytest.raises(NoPermissionError):
        redis.execute_command(*command.split())  # type: ignore[no-untyped-call]


def test_a_prefix_that_would_end_a_rule_is_refused() -> None:
    with pytest.raises(NotConfigured, match="key_prefix"):
        new_access(Keys("{a} ~* +@all"), 0)


def test_no_file_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "users.acl"
    file.write_text("theirs")
    made = cellblock("store-users", "new", str(file))
    assert (made.returncode, made.stdout, file.read_text()) == (4, "", "theirs")
