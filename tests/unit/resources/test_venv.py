# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kind ``venv``: real wheels, a real Python, and what may go wrong between them."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.crash import CrashPoints
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import _tree, _wheel

from .wheels import wheel

if t.TYPE_CHECKING:
    from tests.unit.conftest import Mirror, Sandbox

Spec = dict[str, t.Any]
HELLO = "hello-1.0-py3-none-any.whl"
CODE = "def main():\n    print('hello', VERSION)\nVERSION = '{}'\n"
POINTS = "[console_scripts]\nsay-hello = hello.words:main\n[other]\nx = y\n"


def hello(version: str = "1.0") -> bytes:
    return wheel(
        "hello",
        version,
        {
            "hello/__init__.py": "",
            "hello/words.py": CODE.format(version),
            "hello/template.py": "this is {{ no }} Python\n",
            f"hello-{version}.data/scripts/by-hand!": "#!python\nimport hello.words as w\nw.main()\n",
            f"hello-{version}.data/data/etc/hello.conf": "x = 1\n",
        },
        POINTS,
    )


@pytest.fixture
def box(sandbox: Sandbox, mirror: Mirror) -> Sandbox:
    """A sandbox with a Python."""
    (sandbox.root / "usr/bin").mkdir(parents=True, exist_ok=True)
    (sandbox.root / "usr/bin/python3").symlink_to(os.path.realpath(sys.executable))
    return sandbox


def spec(mirror: Mirror, *versions: str, **more: t.Any) -> Spec:
    if "wheels" not in more:
        versions = versions or ("1.0",)
        more["wheels"] = [mirror.offer(f"/w/hello-{v}-py3-none-any.whl", hello(v)) for v in versions]
    return {"kind": "venv", "id": "v", "path": "/opt/hello", **more}


def says(box: Sandbox, program: str = "say-hello") -> str:
    """Run a program by the environment's Python: its first line has a path without the private root."""
    tree = box.root / "opt/hello"
    argv = [str(tree / "bin/python"), str(tree / "bin" / program)]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


def trees(box: Sandbox) -> list[str]:
    return sorted(path.name for path in (box.root / "opt").iterdir() if not path.is_symlink())


def test_programs_run_and_nothing_is_done_twice(box: Sandbox, mirror: Mirror) -> None:
    assert box.changed(spec(mirror)) == ["v"]
    (tree,) = trees(box)
    assert (box.root / "opt/hello").readlink() == Path(tree)
    assert says(box) == says(box, "by-hand") == "hello 1.0"
    for program in ("say-hello", "by-hand"):
        text = box.read(f"opt/{tree}/bin/{program}")
        assert text.startswith(f"#!/opt/{tree}/bin/python\n"), "of the folder, not of the link"
        assert (box.root / f"opt/{tree}/bin/{program}").stat().st_mode & 0o777 == 0o755
    assert box.read(f"opt/{tree}/etc/hello.conf") == "x = 1\n"
    about = "import sys, importlib.metadata as m; print(sys.prefix, m.version('hello'), len(sys.path))"
    argv = [str(box.root / f"opt/{tree}/bin/python"), "-I", "-c", about]
    told = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()
    assert told[:2] == [str(box.root / f"opt/{tree}"), "1.0"]
    compiled = [path.name for path in (box.root / f"opt/{tree}").rglob("*.pyc")]
    assert any(name.startswith("words.") for name in compiled)
    assert not any(name.startswith("template.") for name in compiled)
    (mirror.folder / "w" / HELLO).unlink()
    assert box.changed(spec(mirror)) == []


def test_other_wheels_another_folder_and_the_one_of_before_stays(box: Sandbox, mirror: Mirror) -> None:
    box.changed(spec(mirror, "1.0"))
    first = trees(box)
    planned = box.run(spec(mirror, "2.0"), check=True)["changes"][0]
    assert planned["before"]["wheels"] == [HELLO]
    assert planned["after"]["wheels"] == ["hello-2.0-py3-none-any.whl"]
    assert box.changed(spec(mirror, "2.0")) == ["v"]
    assert says(box) == "hello 2.0"
    assert set(first) < set(trees(box)) and len(trees(box)) == 2
    assert box.changed(spec(mirror, "3.0")) == ["v"]
    assert len(trees(box)) == 2 and not set(first) & set(trees(box))
    assert box.changed(spec(mirror, "2.0")) == ["v"]
    assert says(box) == "hello 2.0"
    assert box.changed(spec(mirror, "2.0")) == []


@pytest.mark.parametrize("harm", ["content", "gone", "more", "mode", "link"])
def test_drift_is_seen_and_fixed_beside_what_runs(box: Sandbox, mirror: Mirror, harm: str) -> None:
    box.changed(spec(mirror))
    (tree,) = trees(box)
    (words,) = (box.root / "opt" / tree).rglob("words.py")
    if harm == "content":
        words.write_text(words.read_text().replace("hello", "hullo"))
    elif harm == "gone":
        words.unlink()
    elif harm == "more":
        (words.parent / "extra.py").write_text("")
    elif harm == "mode":
        words.chmod(0o666)
    else:
        (box.root / "opt/hello").unlink()
        (box.root / "opt/hello").symlink_to("elsewhere")
    assert box.changed(spec(mirror)) == ["v"]
    assert says(box) == "hello 1.0"
    assert box.changed(spec(mirror)) == []


def test_touching_a_file_is_no_drift_and_read_once(
    box: Sandbox, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    box.changed(spec(mirror))
    (words,) = (box.root / "opt").rglob("hello-*/lib/*/site-packages/hello/words.py")
    os.utime(words)
    assert box.changed(spec(mirror)) == []
    monkeypatch.setattr(_tree, "content", lambda _: pytest.fail("read again"))
    assert box.changed(spec(mirror)) == []


def test_another_python_makes_it_anew(box: Sandbox, mirror: Mirror, tmp_path: Path) -> None:
    box.changed(spec(mirror))
    other = tmp_path / "other-python"
    other.write_text(f'#!/bin/sh\nexec {os.path.realpath(sys.executable)} "$@"\n')
    other.chmod(0o755)
    (box.root / "usr/bin/python3").unlink()
    (box.root / "usr/bin/python3").symlink_to(other)
    (change,) = box.run(spec(mirror), check=True)["changes"]
    assert change["reason"] == "other wheels, or another Python"
    (box.root / "usr/bin/python3").unlink()
    assert "there is no /usr/bin/python3" in box.run(spec(mirror))["msg"]


def test_a_wheel_that_lies_on_the_host(box: Sandbox, mirror: Mirror) -> None:
    box.put(f"var/lib/wheels/{HELLO}", hello())
    local = {"path": f"/var/lib/wheels/{HELLO}", "sha256": hashlib.sha256(hello()).hexdigest()}
    given = spec(mirror, wheels=[{**local, "size": len(hello())}])
    assert box.changed(given) == ["v"]
    assert says(box) == "hello 1.0"
    box.put(f"var/lib/wheels/{HELLO}", hello("6.6"))
    changed = spec(mirror, wheels=[*given["wheels"], mirror.offer("/w/more-1-py3-none-any.whl", b"x")])
    before = box.snapshot()
    assert "is not the wheel that was locked" in box.run(changed)["msg"]
    assert box.snapshot() == before


@pytest.mark.parametrize("before", ["nothing", "another"])
def test_a_wrong_byte_or_a_foreign_wheel_leaves_all_as_it_was(
    box: Sandbox, mirror: Mirror, before: str
) -> None:
    if before == "another":
        box.changed(spec(mirror, "0.9"))
    was = box.snapshot()
    given = spec(mirror, "1.0")
    (mirror.folder / "w" / HELLO).write_bytes(hello("1.1"))
    assert "has the wrong" in box.run(given)["msg"]
    assert box.snapshot() == was
    foreign = mirror.offer("/w/fast-1.0-cp312-cp312-musllinux_1_2_x86_64.whl", hello())
    told = box.run(spec(mirror, wheels=[foreign]))
    assert "cannot use fast-1.0-cp312-cp312-musllinux_1_2_x86_64.whl" in told["msg"]
    assert box.snapshot() == was


@pytest.mark.parametrize(
    "entry", ["../outside.py", "/etc/passwd", "a/../../x", "a//b", "hello-1.0.data/strange/x", "a\\b"]
)
def test_an_entry_that_leaves_the_environment_is_refused(box: Sandbox, mirror: Mirror, entry: str) -> None:
    before = box.snapshot()
    bad = mirror.offer(f"/w/{HELLO}", wheel("hello", "1.0", {"hello/__init__.py": "", entry: "x"}))
    told = box.run(spec(mirror, wheels=[bad]))
    assert "cannot be unpacked" in told["msg"] and repr(entry) in told["msg"]
    assert box.snapshot() == before


@pytest.mark.parametrize("data", [b"no archive", hello()[:-30], hello()[:100] + b"X" + hello()[101:]])
def test_a_damaged_wheel_is_refused(box: Sandbox, mirror: Mirror, data: bytes) -> None:
    before = box.snapshot()
    told = box.run(spec(mirror, wheels=[mirror.offer(f"/w/{HELLO}", data)]))
    assert f"{HELLO} cannot be unpacked" in told["msg"]
    assert box.snapshot() == before


@pytest.mark.parametrize(
    ("points", "wrong"),
    [("[console_scripts]\nx = os.system('x')\n", "'x'"), ("[console_scripts]\n../x = a:b\n", "x")],
)
def test_entry_points_are_names(box: Sandbox, mirror: Mirror, points: str, wrong: str) -> None:
    bad = mirror.offer(f"/w/{HELLO}", wheel("hello", "1.0", {"hello/__init__.py": ""}, points))
    told = box.run(spec(mirror, wheels=[bad]))
    assert "its entry point" in told["msg"] and wrong in told["msg"]


def test_it_goes_with_its_folders_when_nothing_declares_it(box: Sandbox, mirror: Mirror) -> None:
    box.changed(spec(mirror, "1.0"))
    box.changed(spec(mirror, "2.0"))
    assert len(trees(box)) == 2
    gone = box.run(document=box.document(prunes=["l"]))
    assert {change["action"] for change in gone["changes"]} == {"delete"} and len(gone["changes"]) == 3
    assert list((box.root / "opt").iterdir()) == []


GOOD = {"url_path": f"/w/{HELLO}", "sha256": "0" * 64, "size": 1}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"wheels": []}, "wheels is empty"),
        ({"wheels": ["hello"]}, "wheels[0] must be a mapping"),
        ({"wheels": [{**GOOD, "sha265": "x"}]}, "wheels[0] has no 'sha265'; known are url_path, path"),
        ({"wheels": [{**GOOD, "size": "1"}]}, "wheels[0]: size must be a whole number"),
        ({"wheels": [{**GOOD, "path": "/x"}]}, "wheels[0] needs sha256, size and one of url_path"),
        ({"wheels": [{**GOOD, "sha256": "xyz"}]}, "wheels[0]: sha256 must be 64 hexadecimal digits"),
        ({"wheels": [{**GOOD, "size": 0}]}, "wheels[0]: size must be the file's bytes"),
        ({"wheels": [{**GOOD, "url_path": "w/x"}]}, "wheels[0]: 'w/x' must begin with /"),
        (
            {"wheels": [{**GOOD, "url_path": "/w/hello-1.0.tar.gz"}]},
            "'hello-1.0.tar.gz' is no name of a wheel",
        ),
        ({"wheels": [GOOD, {**GOOD, "url_path": "/w/Hello-2-py3-none-any.whl"}]}, "are both hello"),
        ({"python": "python3"}, "python must be an absolute path"),
        ({"path": "/opt/" + "x" * 90}, "path must have at most 90 characters"),
    ],
)
def test_refusals_before_anything_is_touched(sandbox: Sandbox, change: Spec, message: str) -> None:
    given = {"kind": "venv", "id": "v", "path": "/opt/hello", "wheels": [GOOD], **change}
    assert message in sandbox.run(given)["msg"]


def test_a_folder_in_the_way_is_refused(box: Sandbox, mirror: Mirror) -> None:
    box.put("opt/hello/mine", "x")
    assert "/opt/hello exists and is a folder" in box.run(spec(mirror))["msg"]


OURS = _wheel.Python("/usr/bin/python3.13", (3, 13), "x86_64", (2, 41))


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        ("a-1-py3-none-any.whl", True),
        ("a-1-py2.py3-none-any.whl", True),
        ("a-1-1build-py3-none-any.whl", True),
        ("a-1-py2-none-any.whl", False),
        ("a-1-py314-none-any.whl", False),
        ("a-1-py310-none-any.whl", True),
        ("a-1-cp313-cp313-manylinux_2_17_x86_64.manylinux2014_x86_64.whl", True),
        ("a-1-cp312-cp312-manylinux_2_17_x86_64.whl", False),
        ("a-1-cp313-cp313t-manylinux_2_17_x86_64.whl", False),
        ("a-1-cp313-none-any.whl", True),
        ("a-1-cp312-none-any.whl", False),
        ("a-1-cp39-abi3-manylinux2014_x86_64.whl", True),
        ("a-1-cp314-abi3-manylinux2014_x86_64.whl", False),
        ("a-1-cp313-cp313-manylinux_2_42_x86_64.whl", False),
        ("a-1-cp313-cp313-manylinux_2_17_aarch64.whl", False),
        ("a-1-cp313-cp313-musllinux_1_2_x86_64.whl", False),
        ("a-1-cp313-cp313-linux_x86_64.whl", True),
        ("a-1-cp313-cp313-win_amd64.whl", False),
        ("a-1-pp313-pypy313_pp73-manylinux_2_17_x86_64.whl", False),
        ("a.whl", False),
    ],
)
def test_which_wheels_a_python_can_use(name: str, fits: bool) -> None:
    assert _wheel.fits(name, OURS) is fits


def test_killed_at_every_step_it_ends_the_same(box: Sandbox, mirror: Mirror) -> None:
    assert box.changed(spec(mirror, "0.9")) == ["v"]
    # Every write of the journal and every rename of the kind is a place to be killed at.
    steps: list[str] = []
    reached: list[int] = [0]

    class Killed(BaseException):
        pass

    def reach(_: CrashPoints) -> None:
        reached[0] += 1
        if reached[0] == stop:
            raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CrashPoints, "reach", reach)
        for stop in range(1, 40):
            reached[0] = 0
            wanted = "1.0" if stop % 2 else "0.9"
            try:
                box.changed(spec(mirror, wanted))
            except Killed:
                steps.append(wanted)
            else:
                break
            stop, reached[0] = -1, 0
            box.changed(spec(mirror, wanted))
            assert says(box) == f"hello {wanted}"
            assert box.changed(spec(mirror, wanted)) == []
            assert not list(box.root.rglob(".ironspan-*"))
            assert len(trees(box)) <= 2
    assert len(steps) >= 3
