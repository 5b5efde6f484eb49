# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Programs in Python: wheels are pinned, fetched by pip, and packed into one file that unpacks itself."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import pathlib
import subprocess
import sys
import zipfile
from collections.abc import Sequence

import pytest

from ironspan.artifacts import cache, environments, fill, index, lock, lock_file, wheels
from ironspan.artifacts.environments import Environment, Wheel
from ironspan.cli.outcome import CommandError

from .stage import SMALL

PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
TAG = "cp" + PYTHON.replace(".", "")
PURE = "greeting-1.0-py3-none-any.whl"
COMPILED = f"native-2.0-{TAG}-{TAG}-manylinux2014_x86_64.manylinux_2_17_x86_64.whl"
PROGRAM = "import greeting, native, sys\ndef main():\n    print(greeting.TEXT, native.TEXT, *sys.argv[1:])\n"
LOCK = """
environments:
  tool:
    module: tool.start
    packages: [tool]
    extra: tool
    pythons: ["{python}"]
    wheels: {{}}  # by pin
# behind it
"""


def wheel(folder: pathlib.Path, name: str, members: dict[str, str]) -> pathlib.Path:
    """Write a wheel."""
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / name, "w") as archive:
        for member, text in members.items():
            archive.writestr(member, text)
    return folder / name


@pytest.fixture
def published(tmp_path: pathlib.Path) -> pathlib.Path:
    """Return a folder with the wheels that pip could download."""
    folder = tmp_path / "published"
    wheel(folder, PURE, {"greeting/__init__.py": "TEXT = 'hello'\n", "greeting-1.0.dist-info/RECORD": "x"})
    wheel(folder, COMPILED, {"native/__init__.py": "TEXT = 'there'\n"})
    return folder


@pytest.fixture
def tool(tmp_path: pathlib.Path, published: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Environment:
    """Return a program whose code lies in a tree of its own; pip copies from `published`."""
    code = tmp_path / "tree" / "tool"
    code.mkdir(parents=True)
    (code / "__init__.py").write_text("")
    (code / "start.py").write_text(PROGRAM)
    monkeypatch.setattr(environments, "ROOT", tmp_path / "tree")

    def download(
        lines: Sequence[str], arch: str, python: str, folder: pathlib.Path, options: Sequence[str] = ()
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for line in lines:
            name = line.partition("==")[0]
            for path in published.glob(f"{name}-*.whl"):
                (folder / path.name).write_bytes(path.read_bytes())

    monkeypatch.setattr(wheels, "download", download)
    pinned = tuple(
        Wheel(name, hashlib.sha256((published / name).read_bytes()).hexdigest(), "MIT")
        for name in (PURE, COMPILED)
    )
    return Environment("tool", "tool.start", ("tool",), "tool", (PYTHON,), pinned)


def packed(tool: Environment, tmp_path: pathlib.Path, name: str = "tool") -> pathlib.Path:
    """Return the program, packed."""
    place = cache.Cache(tmp_path / "cache")
    target = tmp_path / "opt" / "bin" / name
    target.parent.mkdir(parents=True, exist_ok=True)
    wheels.pack(tool, wheels.fetch(tool, "amd64", place, tmp_path / "scratch"), target)
    return target


def run(program: pathlib.Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a packed program as a host does."""
    command = [sys.executable, "-IS", str(program), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("file", "requirement", "folder", "architectures"),
    [
        (PURE, "greeting==1.0", "common", ["amd64", "arm64"]),
        ("c-50.0.2-cp311-abi3-manylinux_2_28_x86_64.whl", "c==50.0.2", "common", ["amd64"]),
        ("g_o-1.85.1-cp312-cp312-manylinux2014_aarch64.whl", "g_o==1.85.1", "cp312", ["arm64"]),
    ],
)
def test_a_wheels_name_says_where_it_belongs(
    file: str, requirement: str, folder: str, architectures: list[str]
) -> None:
    found = Wheel(file, "", "")
    assert (found.requirement, found.folder) == (requirement, folder)
    assert [arch for arch in ("amd64", "arm64") if found.fits(arch)] == architectures


def test_the_program_runs_without_anything_of_the_host(tool: Environment, tmp_path: pathlib.Path) -> None:
    program = packed(tool, tmp_path)
    assert program.read_bytes().startswith(b"#!/usr/bin/python3 -IS\n")
    first = run(program, "you")
    assert (first.returncode, first.stdout) == (0, "hello there you\n"), first.stderr
    (folder,) = (entry for entry in (tmp_path / "opt/lib").iterdir() if entry.is_dir())
    assert folder.name.endswith(f"-{TAG}")
    assert list(folder.rglob("*.pyc")), "compiled once, so that a start without rights to write is quick"
    assert not list(folder.rglob("RECORD"))


def test_parts_of_the_collection_are_packed_under_their_names(
    tool: Environment, tmp_path: pathlib.Path
) -> None:
    utils = tmp_path / "tree/collections/ansible_collections/ironspan/hybrid/plugins/plugin_utils"
    (utils / "shared").mkdir(parents=True)
    (utils / "shared/__init__.py").write_text("")
    (utils / "shared/part.py").write_text("from ..alone import TEXT\n")
    (utils / "alone.py").write_text("TEXT = 'of the collection'\n")
    (utils / "other.py").write_text("raise SystemExit('never packed')\n")
    name = "ansible_collections.ironspan.hybrid.plugins.plugin_utils"
    (tmp_path / "tree/tool/start.py").write_text(
        f"from {name}.shared.part import TEXT\ndef main():\n    print(TEXT)\n"
    )
    whole = dataclasses.replace(tool, packages=("tool", f"{name}.alone", f"{name}.shared"))
    assert not [member for member in whole.code() if "other" in member]
    done = run(packed(whole, tmp_path))
    assert (done.returncode, done.stdout) == (0, "of the collection\n"), done.stderr


def test_a_program_drains_with_what_it_packs_of_the_collection(
    tmp_path: pathlib.Path,
) -> None:
    name = "ansible_collections.ironspan.hybrid.plugins.plugin_utils"
    program = Environment("p", "p", (f"{name}.errors", f"{name}.kubernetes"), "p", (PYTHON,), ())
    for member, source in program.code().items():
        target = tmp_path / "code" / member
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(source.read_bytes())
    (urllib3,) = importlib.import_module("urllib3").__path__
    (tmp_path / "code/urllib3").symlink_to(urllib3)
    text = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'code')!r})\n"
        f"from {name}.kubernetes import client, cordon, dead_node, drain, objects, pods, rollouts, tls\n"
        "print(drain.drain.__name__, 'ansible' in sys.modules, 'yaml' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-IS", "-c", text], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("drain False False\n", 0), done.stderr


def test_the_same_content_gives_the_same_bytes(tool: Environment, tmp_path: pathlib.Path) -> None:
    one = packed(tool, tmp_path, "one").read_bytes()
    assert packed(tool, tmp_path, "two").read_bytes() == one
    (tmp_path / "tree/tool/start.py").write_text(PROGRAM + "\n")
    assert packed(tool, tmp_path, "three").read_bytes() != one


def test_two_versions_do_not_mix_and_old_ones_go(tool: Environment, tmp_path: pathlib.Path) -> None:
    for number in range(4):
        (tmp_path / "tree/tool/start.py").write_text(f"def main():\n    print({number})\n")
        program = packed(tool, tmp_path)
        assert run(program).stdout == f"{number}\n"
    library = tmp_path / "opt/lib"
    assert len([entry for entry in library.iterdir() if entry.is_dir()]) == 4
    assert run(program, "--unpack").returncode == 0
    assert len([entry for entry in library.iterdir() if entry.is_dir()]) == 2
    assert run(program).stdout == "3\n"


def test_an_unpacking_that_was_killed_is_done_again(tool: Environment, tmp_path: pathlib.Path) -> None:
    program = packed(tool, tmp_path)
    half = tmp_path / "opt/lib/.unpacking/tool"
    half.mkdir(parents=True)
    (half / "left_over.py").write_text("")
    assert run(program).stdout == "hello there\n"
    assert not list((tmp_path / "opt").rglob("left_over*"))


def test_several_first_starts_at_once(tool: Environment, tmp_path: pathlib.Path) -> None:
    program = packed(tool, tmp_path)
    command = [sys.executable, "-IS", str(program)]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert [process.communicate()[0] for process in started] == ["hello there\n"] * 4


def test_a_python_that_it_was_not_made_for(tool: Environment, tmp_path: pathlib.Path) -> None:
    other = Environment("tool", "tool.start", ("tool",), "tool", ("3.99",), tool.wheels[:1])
    program = tmp_path / "tool"
    wheels.pack(other, [], program)
    answer = run(program)
    assert answer.returncode == 1
    assert f"runs with Python 3.99; this host has {PYTHON}" in answer.stderr


@pytest.mark.parametrize(
    ("name", "members", "words"),
    [
        ("a-1-py3-none-any.whl", {"a-1.data/scripts/a": ""}, "unpacking alone does not install"),
        ("a-1-py3-none-any.whl", {"a.pth": "import os"}, "unpacking alone does not install"),
        ("a-1-py3-none-any.whl", {"greeting/__init__.py": "other"}, "another greeting/__init__.py"),
    ],
)
def test_wheels_that_cannot_be_packed(
    tool: Environment,
    tmp_path: pathlib.Path,
    published: pathlib.Path,
    name: str,
    members: dict[str, str],
    words: str,
) -> None:
    added = wheel(tmp_path / "more", name, members)
    with pytest.raises(CommandError, match=words):
        wheels.pack(tool, [published / PURE, added], tmp_path / "program")


def test_what_a_program_does_not_need_stays_out_of_it(
    tool: Environment, tmp_path: pathlib.Path, published: pathlib.Path
) -> None:
    members = {"a/__init__.py": "", "a/tests/x.py": "", "a-1.data/scripts/a": "", "a-nspkg.pth": "import os"}
    added = wheel(tmp_path / "more", "a-1-py3-none-any.whl", members)
    lean = dataclasses.replace(tool, leave_out=("*.data/scripts/*", "*-nspkg.pth", "*/tests/*"))
    target = tmp_path / "program"
    wheels.pack(lean, [published / PURE, added], target)
    with zipfile.ZipFile(target) as archive:
        assert [name for name in archive.namelist() if "/a" in name] == ["common/a/__init__.py"]
    assert lean.recipe("amd64") != tool.recipe("amd64")


def test_versions_of_its_own_are_resolved_without_those_of_the_controller(
    tool: Environment, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "requirements.lock").write_text("greeting==1.0 --hash=sha256:none-of-these\n")
    (tmp_path / "pyproject.toml").write_text(
        '[project.optional-dependencies]\ntool = ["greeting", "native"]\n'
    )
    (tmp_path / "artifacts.lock.yml").write_text(LOCK.format(python=PYTHON))
    asked: list[object] = []

    def resolved(wanted: Sequence[str], arch: str, python: str, constraints: object) -> list[str]:
        asked.append(constraints)
        return ["greeting==1.0", "native==2.0"] if arch == "amd64" else ["greeting==1.0"]

    monkeypatch.setattr(wheels, "resolved", resolved)
    monkeypatch.setattr(wheels, "licence_of", lambda path: "MIT")
    locked = lock.Lock(tmp_path / "artifacts.lock.yml", {}, {}, {}, {})
    with pytest.raises(CommandError, match=r"is not in requirements\.lock"):
        wheels.pin(tool, locked)
    assert asked == [tmp_path / "requirements.lock"] * 2
    assert wheels.pin(dataclasses.replace(tool, own_versions=True), locked)
    assert asked[2:] == [None, None]
    assert f"{PURE}:" in locked.path.read_text()


def test_only_what_is_missing_is_fetched_and_nothing_else_is_believed(
    tool: Environment, tmp_path: pathlib.Path, published: pathlib.Path
) -> None:
    place = cache.Cache(tmp_path / "cache")
    found = wheels.fetch(tool, "amd64", place, tmp_path / "scratch")
    assert [path.name for path in found] == [PURE, COMPILED]
    (published / PURE).unlink()
    assert wheels.fetch(tool, "amd64", place, tmp_path / "scratch") == found
    (place.root / "wheels" / COMPILED).write_bytes(b"altered")
    (published / COMPILED).write_bytes(b"altered as well")
    with pytest.raises(CommandError, match=f"pip did not bring {COMPILED}"):
        wheels.fetch(tool, "amd64", place, tmp_path / "scratch")


def test_the_lock_files_wheels_are_replaced_and_nothing_else() -> None:
    text = LOCK.format(python=PYTHON)
    one = wheels.set_wheels(text, "tool", {PURE: Wheel(PURE, "1a" * 32, "MIT: a licence")})
    assert one.startswith(text[: text.index(" {}")])
    assert one.endswith("  # by pin\n# behind it\n")
    read = lock_file.parse("schema: 1\n" + one.replace("[tool]", "[ironspan]"))
    assert read.environments["tool"].wheels == (Wheel(PURE, "1a" * 32, "MIT: a licence"),)
    again = wheels.set_wheels(one, "tool", {COMPILED: Wheel(COMPILED, "2" * 64, "MIT")})
    assert PURE not in again
    assert again.endswith("  # by pin\n# behind it\n")
    with pytest.raises(CommandError, match="no wheels to replace"):
        wheels.set_wheels(text, "other", {})


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("[ironspan]", "[nothing.here]", "environments.tool.packages: this tree has no package nothing.here"),
        ('["3.13"]', "[3]", "environments.tool.pythons: name versions of Python"),
        ("wheels: {}", "wheels: {a.zip: {sha256: b, licence: c}}", "'a.zip' is not the file name of a wheel"),
        (
            "wheels: {}",
            f"wheels: {{{PURE}: {{sha256: b, licence: c}}}}",
            "sha256: must be 64 hexadecimal digits",
        ),
        ("module: tool.start", "", "environments.tool.module: is missing"),
    ],
)
def test_problems_of_the_lock_file(old: str, new: str, words: str) -> None:
    text = "schema: 1\n" + LOCK.format(python="3.13").replace("[tool]", "[ironspan]")
    assert lock_file.parse(text)
    with pytest.raises(CommandError, match="problem") as caught:
        lock_file.parse(text.replace(old, new))
    assert words in caught.value.message


def test_a_file_needs_an_environment_that_exists() -> None:
    entry = "  tool/1:\n    licence: MIT\n    path: /a/{arch}\n    environment: tool\nimages:"
    with pytest.raises(CommandError, match="there is no environment 'tool'"):
        lock_file.parse(SMALL.replace("DIGEST", "null").replace("images:", entry))


@pytest.mark.parametrize("source", ["auto", "upstream", "go"])
def test_filling_the_mirror(tool: Environment, tmp_path: pathlib.Path, source: fill.SourceChoice) -> None:
    file = lock.File("tool", "1", "MIT", "", "/tool/{arch}", {}, "", "", {}, environment="tool")
    locked = lock.Lock(tmp_path / "lock", {}, {}, {"tool/1": file}, {}, {"tool": tool})
    place = cache.Cache(tmp_path / "cache")

    def filled(arch: str = "amd64") -> list[str]:
        filling = fill.Filling(locked, place, source, arch, lambda *_: None, resolves=lambda _: False)
        return [f"{result.state} {result.detail}" for result in filling.run()]

    assert filled()[0].startswith("done wheels, ")
    assert filled() == ["skip already in the mirror"]
    entry = index.load(place.index_path).artifacts["tool/1/amd64"]
    assert (entry.source, entry.built_from) == ("wheels", "greeting==1.0, native==2.0")
    (tmp_path / "tree/tool/start.py").write_text(PROGRAM + "# another\n")
    assert filled()[0].startswith("done wheels, ")
    assert index.load(place.index_path).artifacts["tool/1/amd64"].sha256 != entry.sha256


def test_an_architecture_without_wheels_is_named(tool: Environment, tmp_path: pathlib.Path) -> None:
    file = lock.File("tool", "1", "MIT", "", "/tool/{arch}", {}, "", "", {}, environment="tool")
    only = Environment("tool", "tool.start", ("tool",), "tool", (PYTHON,), tool.wheels[1:])
    locked = lock.Lock(tmp_path / "lock", {}, {}, {"tool/1": file}, {}, {"tool": only})
    filling = fill.Filling(locked, cache.Cache(tmp_path / "cache"), "auto", "arm64", lambda *_: None)
    (result,) = filling.run()
    assert result.state == "fail"
    assert "pin --wheels tool" in result.detail


def test_this_trees_lock_file_pins_what_requirements_lock_has() -> None:
    locked = lock_file.load()
    known = (locked.path.parent / "requirements.lock").read_text()
    backup = locked.environments["etcd-backup"]
    assert [one.file for one in backup.wheels if f"sha256:{one.sha256}" not in known] == []
    for arch in ("amd64", "arm64"):
        names = [
            one.requirement.partition("==")[0] for one in backup.wheels_for(arch) if one.folder == "cp313"
        ]
        assert "grpcio" in names
