"""`cellblock doctor` beside a worker whose launcher is elsewhere, as in a container of docker-compose."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cellblock_config import load_settings
from cellblock_workers.doctor import command
from cellblock_workers.doctor.launcher import ask_launcher, is_elsewhere
from parts import NAMESPACES, launcher_process


@pytest.fixture(autouse=True)
def _own_logging(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command configures the logging of its process, which here is that of every other case too."""
    monkeypatch.setattr(command, "configure_logging", lambda settings: None)


def examined(capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, object]]:
    """Its exit code, and what it prints as JSON."""
    code = command.run_doctor(attacks=False, json_output=True)
    (line,) = capsys.readouterr().out.splitlines()
    return code, json.loads(line)


def test_launcher_that_is_named_is_asked_and_this_host_is_not_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Injected: a host on which nothing can make a sandbox, as in a worker's container."""
    with launcher_process(tmp_path, **NAMESPACES) as (socket, _):
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setenv("CELLBLOCK_LAUNCHER_SOCKET", str(socket))
        monkeypatch.setenv("CELLBLOCK_LAUNCHER_IMAGE_ROOTS", str(tmp_path / "none"))
        monkeypatch.setenv("CELLBLOCK_LAUNCHER_DOCKER_URL", f"unix://{tmp_path}/none.sock")
        code, found = examined(capsys)
    assert (code, found["ok"]) == (0, True), found
    assert found["levels"] == {"strict": None, "standard": "namespaces", "permissive": "namespaces"}
    assert found["ways"] == []
    names = {check["name"]: check["status"] for check in found["checks"]}  # type: ignore[attr-defined]
    assert names["launcher"] in {"ok", "warning"}
    assert not names.keys() & {"runsc", "docker daemon", "image roots", "cgroups"}, "the launcher's, not ours"


def test_launcher_that_does_not_answer_is_a_problem_with_its_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CELLBLOCK_LAUNCHER_SOCKET", str(tmp_path / "nobody.sock"))
    code, found = examined(capsys)
    assert (code, found["ok"]) == (1, False)
    (check,) = (check for check in found["checks"] if check["name"] == "launcher")  # type: ignore[attr-defined]
    assert (check["status"], "CELLBLOCK_LAUNCHER_SOCKET" in check["value"]) == ("problem", True)
    assert "nobody.sock" in check["remedy"]


def test_launcher_beside_a_worker_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CELLBLOCK_LAUNCHER_SOCKET", raising=False)
    assert not is_elsewhere(load_settings())


def test_levels_are_those_of_the_launcher(tmp_path: Path) -> None:
    with launcher_process(tmp_path, **NAMESPACES) as (socket, _):
        check, levels = ask_launcher(load_settings(launcher={"socket": socket}))
    assert levels["standard"] == "namespaces"
    assert (check.status == "ok") == (check.remedy == "")
