"""Who may run at all: default deny, a reason for each answer, and no answer is no permission."""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import Any

import pytest

from cellblock.admission.policy import Decision, Principal, Question, decision_point
from cellblock.errors import PolicyError, PolicyUnavailable
from cellblock_config import SettingsError, load_settings
from cellblock_config.policy import PolicySettings
from parts import REPOSITORY

OURS = REPOSITORY / "config" / "policies"
RUN = "agent.run.invoke"


def question(tenant: str = "acme", action: str = RUN, principal: Principal | None = None) -> Question:
    return Question(principal or Principal(), action, tenant, {"level": "strict", "timeout_s": 10})


def key(*capabilities: str, tenant: str = "acme") -> Principal:
    return Principal(key_id="k1", tenant=tenant, capabilities=capabilities)


def test_without_a_policy_nobody_is_asked() -> None:
    assert decision_point(PolicySettings()).decide(question()).allowed


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (question(), Decision(True, ("producers-run-for-any-tenant",))),
        (question(principal=key(RUN)), Decision(True, ("keys-run-for-their-own-tenant",))),
        (question(principal=key()), Decision(False)),
        (question(principal=key("tool.math.invoke")), Decision(False)),
        (question(tenant="other", principal=key(RUN)), Decision(False)),
        (question(action="wallet.transfer"), Decision(False)),
        (question(action="wallet.transfer", principal=key(RUN, "wallet.transfer")), Decision(False)),
        (question(tenant='x"; permit(principal,action,resource);//', principal=key(RUN)), Decision(False)),
    ],
)
def test_the_policies_we_ship_permit_what_they_name_and_nothing_else(
    asked: Question, expected: Decision
) -> None:
    assert decision_point(PolicySettings(folder=OURS)).decide(asked) == expected


def test_a_forbid_outweighs_a_permit_and_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.cedar").write_text("permit (principal, action, resource);")
    (tmp_path / "b.cedar").write_text(
        '@id("no-strict") forbid (principal, action, resource) when { context.level == "strict" };'
    )
    assert decision_point(PolicySettings(folder=tmp_path)).decide(question()) == Decision(
        False, ("no-strict",)
    )


def test_a_policy_that_cannot_be_evaluated_permits_nothing(tmp_path: Path) -> None:
    """Cedar leaves out a policy that errs; left out, a forbid would permit."""
    (tmp_path / "a.cedar").write_text(
        "permit (principal, action, resource);"
        "forbid (principal, action, resource) when { context.missing == 1 };"
    )
    with pytest.raises(PolicyUnavailable, match="cannot be evaluated"):
        decision_point(PolicySettings(folder=tmp_path)).decide(question())


@pytest.mark.parametrize(
    ("text", "says"), [("permit (principal", "a.cedar"), ("\xff", "a.cedar"), (None, "no ")]
)
def test_policies_that_cannot_be_read_are_refused_by_name(
    tmp_path: Path, text: str | None, says: str
) -> None:
    if text is not None:
        (tmp_path / "a.cedar").write_bytes(text.encode("latin-1"))
    with pytest.raises(PolicyError, match=says):
        decision_point(PolicySettings(folder=tmp_path))


def test_changed_policies_hold_and_unreadable_ones_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("cellblock.admission.policy.cedar._LOOK_S", 0.0)
    file = tmp_path / "a.cedar"
    file.write_text("permit (principal, action, resource);")
    point = decision_point(PolicySettings(folder=tmp_path))
    assert point.decide(question()).allowed
    file.write_text("forbid (principal, action, resource); // changed")
    assert not point.decide(question()).allowed
    file.write_text("permit (princ")
    assert not point.decide(question()).allowed
    assert "policies not changed" in caplog.text
    file.unlink()
    assert not point.decide(question()).allowed


class Answering:
    """A decision point of an operator's: answers what ``says`` returns for each question."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.says: Callable[[], tuple[int, bytes]] = lambda: (200, b'{"allowed": true, "reasons": ["r"]}')
        self.url = ""


@contextmanager
def answering() -> Iterator[Answering]:
    state = Answering()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            state.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            state.headers.append(dict(self.headers))
            code, body = state.says()
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_address[1]}/decide"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_remote_decision_is_asked_once_and_remembered_for_a_while() -> None:
    with answering() as service:
        point = decision_point(PolicySettings(url=service.url, token="sentinel", cache_s=0.5))
        for _ in range(3):
            assert point.decide(question()) == Decision(True, ("r",))
        assert len(service.asked) == 1
        assert service.asked[0]["action"] == RUN
        assert service.headers[0]["Authorization"] == "Bearer sentinel"
        point.decide(question(tenant="other"))
        assert len(service.asked) == 2, "another question is not answered by the first"
        time.sleep(0.6)
        service.says = lambda: (200, b'{"allowed": false}')
        assert point.decide(question()) == Decision(False)


@pytest.mark.parametrize(
    "answer",
    [
        (500, b'{"allowed": true}'),
        (302, b'{"allowed": true}'),
        (201, b'{"allowed": true}'),
        (200, b'{"allowed": "true"}'),
        (200, b'{"allowed": 1}'),
        (200, b"{}"),
        (200, b"[]"),
        (200, b"true"),
        (200, b""),
        (200, b'{"allowed": true, "reasons": ["' + b"x" * 100_000 + b'"]}'),
        (200, gzip.compress(b'{"allowed": true}')[:-4]),
    ],
)
def test_an_answer_that_is_none_is_no_permission(answer: tuple[int, bytes]) -> None:
    with answering() as service:
        service.says = lambda: answer
        with pytest.raises(PolicyUnavailable):
            decision_point(PolicySettings(url=service.url)).decide(question())


def test_nobody_there_and_nobody_in_time_is_no_permission() -> None:
    with pytest.raises(PolicyUnavailable, match="did not answer"):
        decision_point(PolicySettings(url="http://127.0.0.1:1/")).decide(question())
    for url in ("http://a:b/", "http://" + "a" * 70 + "/", "http://\x00/"):
        with pytest.raises(PolicyUnavailable):
            decision_point(
                PolicySettings.model_construct(**{**PolicySettings().__dict__, "url": url})
            ).decide(question())
    with answering() as service:

        def slow() -> tuple[int, bytes]:
            time.sleep(2)
            return 200, b'{"allowed": true}'

        service.says = slow
        began = time.monotonic()
        with pytest.raises(PolicyUnavailable):
            decision_point(PolicySettings(url=service.url, timeout_s=0.2)).decide(question())
        assert time.monotonic() - began < 1.5


@pytest.mark.parametrize(
    ("head", "drip"),
    [
        (b"", b"X-Slow: 1\r\n"),
        (b"Content-Length: 999999\r\n\r\n", b"  "),
        (b'\r\n{"allowed": true}', b"  "),
    ],
    ids=["headers without end", "a body without end", "a yes without end"],
)
def test_an_answer_that_never_ends_is_none_in_time(head: bytes, drip: bytes) -> None:
    """Each byte comes in time; the answer does not."""

    class Dripping(StreamRequestHandler):
        def handle(self) -> None:
            self.request.recv(65536)
            with suppress(OSError):
                self.request.sendall(b"HTTP/1.1 200 OK\r\n" + head)
                for _ in range(100):
                    self.request.sendall(drip)
                    time.sleep(0.05)

    with ThreadingTCPServer(("127.0.0.1", 0), Dripping) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}/"
        began = time.monotonic()
        with pytest.raises(PolicyUnavailable, match="did not answer"):
            decision_point(PolicySettings(url=url, timeout_s=0.3)).decide(question())
        assert time.monotonic() - began < 2
        server.shutdown()


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        ({"url": "ftp://x"}, "policy.url"),
        ({"url": "http://"}, "policy.url"),
        ({"url": "http://x", "folder": "/y"}, "only one can decide"),
        ({"url": "http://x", "timeout_s": 0}, "policy.timeout_s"),
        ({"url": "http://decides.example", "token": "t"}, "policy.url is http and policy.token is set"),
        (
            {"url": "http://127.0.0.1.example:8080", "token": "t"},
            "policy.url is http and policy.token is set",
        ),
        ({"url": "http://10.0.0.1", "token": "t"}, "policy.url is http and policy.token is set"),
    ],
)
def test_settings_that_cannot_work_are_refused(policy: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        load_settings(policy=policy)
