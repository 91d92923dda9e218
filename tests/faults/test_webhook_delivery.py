"""Webhooks against a real receiver that is late, wrong, gone or hostile."""

from __future__ import annotations

import json
import logging
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from cellblock import Client
from cellblock.ledger import connect
from cellblock.ledger.groups import WEBHOOKS_GROUP
from cellblock.webhooks import EVENT_HEADER, SIGNATURE_HEADER, verify
from cellblock_config import Settings, load_settings
from cellblock_workers.telemetry import configure_logging
from cellblock_workers.webhooks import sender as sender_module
from cellblock_workers.webhooks.delivery import Delivery
from cellblock_workers.webhooks.failures import run_dead, run_retry
from cellblock_workers.webhooks.outbox import Item, Outbox, receiver_of
from cellblock_workers.webhooks.sender import Sender
from ledger.kit import admit, claim, dump, finish
from parts import wait_until

pytestmark = pytest.mark.no_rerun

SECRET = "of this test alone"


@dataclass
class Receiver:
    """Answers with what ``answer`` says for each try, and keeps what came."""

    port: int = 0
    came: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    answer: Callable[[int], int] = lambda tries: 200

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook?token=sentinel-token"

    def ids(self) -> list[str]:
        return [headers[EVENT_HEADER] for headers, _ in self.came]


@contextmanager
def receiver() -> Iterator[Receiver]:
    state = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            state.came.append((dict(self.headers), body))
            code = state.answer(len(state.came))
            if code == 0:
                time.sleep(3)
                return
            self.send_response(code)
            if code == 302:
                self.send_header("Location", "http://127.0.0.1:1/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def sender(redis_url: str, *urls: str, **hooks: Any) -> Iterator[tuple[Sender, Client]]:
    """Started before anything happens: a new group hears only of what comes."""
    settings: Settings = load_settings(
        redis={"url": redis_url},
        webhooks={
            "urls": urls,
            "secret": SECRET,
            "allow_private": True,
            "backoff_s": 0.05,
            "timeout_s": 1,
            **hooks,
        },
    )
    one = Sender(settings)
    with Client(settings=settings) as client:
        one.accept()
        one.start()
        try:
            yield one, client
        finally:
            one.stop()


def run_a_job(client: Client, job_id: str = "job") -> None:
    admit(client._ledger, job_id)
    finish(client._ledger, claim(client._ledger, job_id))


def test_an_event_is_posted_once_signed_and_without_code(redis_url: str) -> None:
    with receiver() as hook, sender(redis_url, hook.url) as (_, client):
        run_a_job(client)
        wait_until(lambda: hook.came, 10, "the delivery")
        time.sleep(0.5)
        ((headers, body),) = hook.came
        event = json.loads(body)
        assert (event["type"], event["job_id"], event["outcome"]) == ("agent.run.succeeded", "job", "ok")
        assert headers[EVENT_HEADER] == event["id"]
        assert verify(body, headers[SIGNATURE_HEADER], SECRET)
        assert headers["Host"] == f"127.0.0.1:{hook.port}"


@pytest.mark.parametrize("wrong", [500, 404, 302, 0])
def test_a_delivery_that_is_not_taken_is_tried_again_with_growing_pauses(redis_url: str, wrong: int) -> None:
    with receiver() as hook, sender(redis_url, hook.url, backoff_s=0.5) as (_, client):
        hook.answer = lambda tries: wrong if tries < 3 else 200
        run_a_job(client)
        times: list[float] = []
        for tries in (1, 2, 3):
            wait_until(lambda tries=tries: len(hook.came) >= tries, 20, f"try {tries}")  # type: ignore[misc]
            times.append(time.monotonic())
        assert times[2] - times[1] > 0.4 and times[1] - times[0] > 0.2, "half a second, then a second, spread"
        time.sleep(0.5)
        assert len(set(hook.ids())) == 1, "the same event each time, and no more after it was taken"
        assert len(hook.came) == 3


def test_what_nobody_takes_is_a_dead_letter_and_can_be_tried_again(
    redis_url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with receiver() as hook, sender(redis_url, hook.url, tries_max=3) as (one, client):
        hook.answer = lambda tries: 500
        run_a_job(client)
        wait_until(one._outbox.dead, 10, "giving up")
        (item,) = one._outbox.dead()
        assert (item.tries, item.why) == (3, "127.0.0.1 answered 500")
        hook.answer = lambda tries: 200
        monkeypatch.setenv("CELLBLOCK_REDIS_URL", redis_url)
        assert run_dead(limit=5, json_output=True) == 0
        shown = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert (shown["id"], shown["host"], shown["tries"]) == (item.id, "127.0.0.1", 3)
        assert "sentinel-token" not in json.dumps(shown)
        assert run_retry([item.id], json_output=True) == 0
        assert run_retry(["nobody's"], json_output=False) == 2
        wait_until(lambda: len(hook.came) == 4, 10, "the delivery")
        wait_until(lambda: not one._outbox.dead(), 5, "nothing left")
    assert "sentinel-token" not in "".join(capsys.readouterr()), "an address may hold a secret"


def test_a_try_that_took_too_long_has_no_say(redis_url: str) -> None:
    with connect(load_settings(redis={"url": redis_url})) as redis:
        outbox = Outbox(redis, "{p}", kept=10)
        outbox.put([Item("1", "r", "x", "1-0", "{}")])
        slow = outbox.take(hold_s=0.001)
        time.sleep(0.01)
        quick = outbox.take(hold_s=60)
        assert slow is not None
        assert quick is not None
        assert outbox.delivered(quick)
        assert not outbox.failed(slow, "late", again_s=0)
        assert not outbox.delivered(slow)
        assert outbox.take(hold_s=1) is None, "it was delivered"
        outbox.put([Item("2", "r", "x", "2-0", "{}")])
        lost = outbox.take(hold_s=60)
        assert lost is not None
        assert outbox.failed(lost, "gone", again_s=None)
        outbox.put([Item("2", "r", "x", "2-0", "{}")])
        assert outbox.take(hold_s=1) is None, "it failed for good, and only an operator tries again"


def test_one_receiver_that_hangs_delays_no_other(redis_url: str) -> None:
    with (
        receiver() as slow,
        receiver() as quick,
        sender(redis_url, slow.url, quick.url, parallel=2) as (_, client),
    ):
        slow.answer = lambda tries: 0
        for number in range(5):
            run_a_job(client, f"job{number}")
        wait_until(lambda: len(quick.came) == 5, 20, "the other receiver's five")


def test_a_sender_that_died_between_reading_and_sending_loses_nothing(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with receiver() as hook:
        with sender(redis_url, hook.url) as (_, client):
            pass  # the group exists from now on
        with Client(redis_url) as client:
            run_a_job(client)
            with pytest.raises(ValueError, match="belongs to"):
                client.events(group=WEBHOOKS_GROUP)
            read: dict[str, Any] = {"after": "$", "limit": 10, "wait_s": 0, "redeliver_s": 60}
            groups = client._connections.groups
            assert groups.read(WEBHOOKS_GROUP, "died", **read), "read, and never acknowledged"
        # Injected: the time after which an event is read again has passed.
        monkeypatch.setattr(sender_module, "_REDELIVER_S", 0.01)
        with sender(redis_url, hook.url):
            wait_until(lambda: hook.came, 20, "the event that the dead sender had read")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of 127.0.0.1, with its key, in one file."""
    file = tmp_path_factory.mktemp("tls") / "both.pem"
    asked = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=hook"]
    asked += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(file), "-out", "-"]
    made = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
    file.write_text(file.read_text() + made)
    return file


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_receiver_that_drips_has_no_more_time_than_any_other(scheme: str, certificate: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:

        def drip() -> None:
            connection, _ = listener.accept()
            with suppress(OSError), ExitStack() as stack:
                if scheme == "https":
                    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                    context.load_cert_chain(certificate)
                    connection = context.wrap_socket(connection, server_side=True)
                stack.enter_context(connection)
                connection.sendall(b"HTTP/1.1 200 OK\r\n")
                for _ in range(40):
                    connection.sendall(b"X")
                    time.sleep(0.25)

        thread = threading.Thread(target=drip)
        thread.start()
        delivery = Delivery(SECRET, timeout_s=1, allow_private=True)
        # The test's certificate is nobody's: this one trusts it.
        trusting = ssl.create_default_context(cafile=str(certificate))
        delivery._http = httpx.Client(timeout=1, trust_env=False, verify=trusting)
        began = time.monotonic()
        why = delivery.post(f"{scheme}://127.0.0.1:{listener.getsockname()[1]}/", "1-0", b"{}")
        assert time.monotonic() - began < 4
        delivery.close()
        thread.join()
    assert why is not None
    assert "did not answer" in why


def test_an_address_nobody_foresaw_is_a_failed_try(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down(*_: object) -> str | None:
        raise RuntimeError("a defect")  # Injected

    with receiver() as hook, sender(redis_url, hook.url, tries_max=2) as (one, client):
        monkeypatch.setattr(one._delivery, "post", break_down)
        run_a_job(client)
        wait_until(one._outbox.dead, 10, "giving up")


def test_the_senders_log_holds_no_address(redis_url: str, capfd: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    configure_logging(load_settings(telemetry={"log_level": "debug"}).telemetry)
    try:
        with receiver() as hook, sender(redis_url, hook.url) as (_, client):
            run_a_job(client)
            wait_until(lambda: hook.came, 10, "the delivery")
    finally:
        root.handlers[:], root.level = before
    assert "sentinel-token" not in "".join(capfd.readouterr())


def test_a_private_address_is_not_called_unless_allowed() -> None:
    with receiver() as hook:
        delivery = Delivery(SECRET, timeout_s=1, allow_private=False)
        why = delivery.post(hook.url, "1-0", b"{}")
        delivery.close()
        assert why is not None
        assert "127.0.0.1 points at 127.0.0.1" in why
        assert "sentinel-token" not in why
        assert hook.came == []


def test_redis_holds_no_address_and_does_not_decide_on_one(redis_url: str) -> None:
    """Who can write to Redis gets nothing signed and sent to an address of theirs."""
    with receiver() as hook, sender(redis_url, hook.url, tries_max=1) as (one, client):
        with connect(load_settings(redis={"url": redis_url})) as redis:
            hook.answer = lambda tries: 500
            run_a_job(client)
            wait_until(one._outbox.dead, 10, "giving up")
            assert "sentinel-token" not in str(dump(redis))
        foreign = Item("mine", receiver_of("http://127.0.0.1:1/"), "127.0.0.1", "1-0", "{}")
        one._outbox.put([foreign])
        wait_until(lambda: len(one._outbox.dead()) == 2, 10, "giving up on a stranger")
        assert "CELLBLOCK_WEBHOOKS_URLS" in one._outbox.dead()[0].why
        assert len(hook.came) == 1


def failed_for_good(outbox: Outbox, name: str) -> None:
    outbox.put([Item(name, "r", "x", "1-0", "{}")])
    taken = outbox.take(hold_s=60)
    assert taken is not None
    assert outbox.failed(taken, "gone", again_s=None)


def test_of_those_that_failed_for_good_the_latest_are_kept(redis_url: str) -> None:
    with connect(load_settings(redis={"url": redis_url})) as redis:
        outbox = Outbox(redis, "{p}", kept=2)
        for name in ("1", "2", "3"):
            failed_for_good(outbox, name)
        assert [item.id for item in outbox.dead()] == ["3", "2"]
        assert set(map(str, redis.hkeys("{p}:webhooks:items"))) == {"2", "3"}


def test_a_retry_whose_reply_was_lost_is_one(redis_url: str) -> None:
    with connect(load_settings(redis={"url": redis_url})) as redis:
        outbox = Outbox(redis, "{p}", kept=2)
        failed_for_good(outbox, "1")
        assert outbox.retry("1")
        assert outbox.retry("1"), "told twice"
        assert outbox.dead() == []
        again = outbox.take(hold_s=60)
        assert again is not None
        assert again.item.tries == 0
        assert outbox.delivered(again)
        assert not outbox.retry("1")
        assert redis.exists("{p}:webhooks:items", "{p}:webhooks:due", "{p}:webhooks:dead") == 0
