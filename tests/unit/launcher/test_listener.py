"""The launcher's socket, from the moment that somebody can see it."""

from __future__ import annotations

import socket
import stat
from pathlib import Path

import pytest

from cellblock_workers.launcher import listener


def test_a_socket_appears_when_it_listens_and_has_its_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "launcher.sock"
    seen_before: list[bool] = []

    class Watched(socket.socket):
        """The real socket; notes who could have tried to connect too early."""

        def listen(self, backlog: int = 0, /) -> None:
            seen_before.append(path.exists())
            super().listen(backlog)

    monkeypatch.setattr(socket, "socket", Watched)
    with listener.listen(path, open_to_others=False):
        assert seen_before == [False]
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with Watched(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
            client.connect(str(path))
        assert [one.name for one in tmp_path.iterdir()] == [path.name]


def test_a_dead_launcher_s_socket_is_replaced_and_a_living_one_s_is_not(tmp_path: Path) -> None:
    path = tmp_path / "launcher.sock"
    listener.listen(path, open_to_others=True).close()
    with listener.listen(path, open_to_others=True):
        assert stat.S_IMODE(path.stat().st_mode) == 0o666
        with pytest.raises(SystemExit, match="another launcher already listens"):
            listener.listen(path, open_to_others=True)


def test_a_file_that_is_no_socket_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "launcher.sock"
    path.write_text("somebody's")
    with pytest.raises(SystemExit, match="is not a socket"):
        listener.listen(path, open_to_others=False)
    assert path.read_text() == "somebody's"
