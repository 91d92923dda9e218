"""The library's modules that a guest takes from its file come out as if each were imported from its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cellblock_workers.guest import guest_texts
from cellblock_workers.launcher import guest_program as program
from cellblock_workers.launcher.image_library import IMPORTED, ImageLibrary, read_library

LIBRARY = Path(os.__file__).parent
FOLDERS = ("collections", "ctypes", "importlib", "json", "re", "lib-dynload", "__pycache__")
#: Runs in the place of the guest's last piece: what an import sets of each module, and the files it opened.
REPORT = """
def about(module):
    spec = module.__spec__
    names = sorted(name for name in vars(module) if not name.startswith("__"))
    own = [getattr(module, name, None) for name in ("__file__", "__path__", "__package__", "__cached__")]
    return [type(spec.loader).__name__, spec.origin, spec.cached, spec.submodule_search_locations, own, names]
import builtins, sys
modules = {name: about(one) for name, one in sys.modules.items() if getattr(one, "__spec__", None)}
print(json.dumps([modules, OPENED, builtins.__import__.__class__.__name__]))
"""
LISTEN = """
import sys
OPENED = []
sys.addaudithook(lambda event, given: OPENED.append(str(given[0])) if event in ("open", "import") else None)
"""


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """The folder of an image with the library of the interpreter that runs the tests."""
    root = tmp_path.resolve() / "image"
    copied = root / "usr/lib" / LIBRARY.name
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/python3").symlink_to(LIBRARY.name)
    for name in FOLDERS:
        shutil.copytree(LIBRARY / name, copied / name)
    for source in LIBRARY.glob("*.py"):
        shutil.copy2(source, copied)
    return root


def library_of(image: Path) -> ImageLibrary:
    """The image's library, where this interpreter has its own: so it takes it for its own."""
    found = read_library(image)
    modules = [
        replace(one, file=str(LIBRARY / Path(one.file).relative_to(found.folder))) for one in found.modules
    ]
    return replace(found, folder=str(LIBRARY), modules=tuple(modules))


def report(monkeypatch: pytest.MonkeyPatch, folder: Path, library: ImageLibrary) -> list[Any]:
    """What the real guest has imported when it begins, in an interpreter that has imported nothing else."""
    monkeypatch.setattr(program, "guest_texts", lambda: {**guest_texts(), "guest/main.py": REPORT})
    file = folder / "guest"
    file.write_bytes(program.guest_file.__wrapped__(library))
    option, start, *rest = program.guest_program_in_file(str(file), {})
    command = [sys.executable, "-I", "-S", option, LISTEN + start, *rest]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told: list[Any] = json.loads(done.stdout)
    return told


def test_modules_from_memory_are_as_those_from_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, image: Path
) -> None:
    from_memory, opened, importer = report(monkeypatch, tmp_path, library_of(image))
    from_files, opened_before, _ = report(monkeypatch, tmp_path, ImageLibrary())
    assert from_memory == from_files
    assert [path for path in opened if path.endswith(".pyc")] == []
    assert len([path for path in opened_before if path.endswith(".pyc")]) > 20
    assert importer == "builtin_function_or_method"


@pytest.mark.parametrize("change", ["magic", "folder"])
def test_a_library_of_another_interpreter_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, image: Path, change: str
) -> None:
    library = library_of(image)
    foolish = tuple(replace(one, code=b"not code") for one in library.modules)
    other = {"magic": b"else"} if change == "magic" else {"folder": "/usr/lib/python2.7"}
    modules, _, _ = report(monkeypatch, tmp_path, replace(library, modules=foolish, **other))
    assert "json.decoder" in modules


def test_code_of_an_older_source_is_left_out(image: Path) -> None:
    source = image / "usr/lib" / LIBRARY.name / "json/decoder.py"
    assert "json.decoder" in names(image)
    source.write_text(source.read_text() + "#\n")
    read_library.cache_clear()
    assert "json.decoder" not in names(image)
    assert "json.encoder" in names(image)


def test_a_link_out_of_the_image_is_left_out(image: Path, tmp_path: Path) -> None:
    """An image may hold any link: the launcher, which is root, must not show a job what it leads to."""
    (compiled,) = (image / "usr/lib" / LIBRARY.name / "json/__pycache__").glob("decoder.cpython-*[0-9].pyc")
    secret = tmp_path / "secret"
    secret.write_bytes(compiled.read_bytes()[:4] + b"\1\0\0\0" + bytes(8) + b"the host's")
    compiled.unlink()
    compiled.symlink_to(secret)
    assert "json.decoder" not in names(image)


def test_a_file_longer_than_any_module_is_left_out(image: Path) -> None:
    """The launcher would hold it, and write it into each sandbox."""
    (compiled,) = (image / "usr/lib" / LIBRARY.name / "json/__pycache__").glob("decoder.cpython-*[0-9].pyc")
    with compiled.open("ab") as file:
        file.truncate(2**30)
    assert "json.decoder" not in names(image)


@pytest.mark.parametrize("package", ["collections", "json", "re", "ctypes", "importlib"])
def test_a_module_whose_package_was_left_out_comes_from_its_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, image: Path, package: str
) -> None:
    library = library_of(image)
    rest = tuple(one for one in library.modules if one.name != package)
    from_memory, opened, _ = report(monkeypatch, tmp_path, replace(library, modules=rest))
    from_files, _, _ = report(monkeypatch, tmp_path, ImageLibrary())
    assert from_memory == from_files
    assert [path for path in opened if path.endswith(".pyc")] != []


def test_an_image_without_a_library_has_none(tmp_path: Path) -> None:
    assert read_library(tmp_path) == ImageLibrary()


def test_a_module_that_fails_is_not_left_half_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, image: Path
) -> None:
    """An optional module may be missing or broken; who imports it goes on without it."""
    library = library_of(image)
    broken = tuple(
        replace(one, kind="extension", file="/nowhere.so") if one.name == "_json" else one
        for one in library.modules
    )
    modules, _, _ = report(monkeypatch, tmp_path, replace(library, modules=broken))
    assert "json.decoder" in modules
    assert "_json" not in modules


def names(image: Path) -> set[str]:
    return {module.name for module in read_library(image).modules} & set(IMPORTED)
