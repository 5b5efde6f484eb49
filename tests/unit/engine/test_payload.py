# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What is sent to each host: small, and the same code."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils import payload

BUDGET = 256_000
"""Bytes of the whole payload (256 kB), Ansible's own part included."""

HOST_SIDE = sorted((Path(__file__).resolve().parents[3] / "plugins").glob("module*/**/*.py"))


class _Locals(ast.NodeTransformer):
    """Leaves out the types of functions' own names that get a value, as far as they lie in one line."""

    inside = False

    def generic_visit(self, node: ast.AST) -> ast.AST:
        before = self.inside
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            self.inside = isinstance(node, ast.FunctionDef)
        found = super().generic_visit(node)
        self.inside = before
        return found

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        one_line = node.target.lineno == node.annotation.end_lineno
        if self.inside and node.value and isinstance(node.target, ast.Name) and one_line:
            return ast.Assign([node.target], node.value)
        return node


def bare(source: str, types: bool = True) -> str:
    """Return the code's tree without strings that stand for themselves, and without ansible-doc's texts."""
    tree = ast.parse(source)
    if not types:
        tree = _Locals().visit(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and not types:
            node.annotation = None
        elif isinstance(node, ast.FunctionDef) and not types:
            node.returns = None
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [entry for entry in body if not _is_text(entry)]  # type: ignore[attr-defined]
    return ast.dump(tree)


def _is_text(entry: ast.stmt) -> bool:
    if isinstance(entry, ast.Assign):
        return ast.unparse(entry.targets[0]) in ("DOCUMENTATION", "EXAMPLES", "RETURN")
    value = entry.value if isinstance(entry, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


@pytest.mark.parametrize("path", HOST_SIDE, ids=lambda path: path.name)
def test_only_texts_are_left_out(path: Path) -> None:
    source = path.read_text()
    short = payload.shortened(source)
    assert bare(short) == bare(source)
    assert len(short.splitlines()) == len(source.splitlines())
    assert '"""' not in short
    without = payload.shortened(source, types=False)
    assert bare(without, types=False) == bare(source, types=False)
    assert len(without.splitlines()) == len(source.splitlines())
    compile(without, str(path), "exec")


TYPED = [
    (
        "x: int = 1\ndef f():\n    if a:\n        é: X[int] = 1\n    y: int\n    z.a: int = 1\n"
        "    class B:\n        b: int = 1\n",
        "x: int = 1\ndef f():\n if a:\n  é = 1\n y: int\n z.a: int = 1\n class B:\n  b: int = 1\n",
    ),
    (
        "def f(a: int, *b: str, c: t.Any = 1, **d: int) -> str:\n    x: int = 1\n",
        "def f(a, *b, c = 1, **d) :\n x = 1\n",
    ),
    (
        "def f(\n    ä: 'é', b: X[\n        int] = 2\n) -> X[\n    int\n]: pass\n",
        "def f(\n ä, b: X[\n  int] = 2\n) -> X[\n int\n]: pass\n",
    ),
    (
        "class A:\n    x: int\n    async def f(self, /, b: int) -> None: pass\n",
        "class A:\n x: int\n async def f(self, /, b) : pass\n",
    ),
]


@pytest.mark.parametrize(("source", "short"), TYPED)
def test_types_of_functions_are_left_out(source: str, short: str) -> None:
    assert payload.shortened(source, types=False) == short


def test_nothing_asks_for_the_types_that_are_left_out() -> None:
    asking = ("__annotations__", "get_type_hints", "get_annotations", "inspect")
    assert [path for path in HOST_SIDE for word in asking if word in bare(path.read_text())] == []


CASES = [
    ('"""Doc."""\nx = 1  # why\n', '""\nx = 1  # why\n'),
    ('def f():\n    """One.\n\n    Two.\n    """\n', 'def f():\n ""\n\n\n\n'),
    (
        "if a:\n    if b:\n        x = '''\n        y\n    '''\n    z\n",
        "if a:\n if b:\n  x = '''\n        y\n    '''\n z\n",
    ),
    ("if a:\n    x = f(\n      1,\n    )\n", "if a:\n x = f(\n   1,\n )\n"),
    ('if a:\n    x = f"""{\n        a}\n    b"""\n', 'if a:\n x = f"""{\n  a}\n    b"""\n'),
    ("# only\nx = '''# no comment\n# inside'''\n", "\nx = '''# no comment\n# inside'''\n"),
    ('class A:\n    "ü"\n    x = 1\n', 'class A:\n ""\n x = 1\n'),
    ('DOCUMENTATION = r"""\na\n"""\nRETURN = "b"\n', 'DOCUMENTATION = ""\n\n\nRETURN = ""\n'),
    ('OTHER = """\na\n"""\n', 'OTHER = """\na\n"""\n'),
    ('RETURN = "a"; x = 1\n', 'RETURN = "a"; x = 1\n'),
    ('def f(): "stays"\n', 'def f(): "stays"\n'),
    ('"a"; x = 1\n', '"a"; x = 1\n'),
    ("x = 1\n", "x = 1\n"),
    ("", ""),
]


@pytest.mark.parametrize(("source", "short"), CASES)
def test_shortened(source: str, short: str) -> None:
    assert payload.shortened(source) == short


PROGRAM = """
import sys
from pathlib import Path
from ansible import constants
from ansible.plugins.loader import init_plugin_loader
constants.DEFAULT_LOCAL_TMP = sys.argv[1]
init_plugin_loader()
from ansible_collections.ironspan.hybrid.plugins.plugin_utils import payload
{before}
payload.prepare("ironspan.hybrid.converge")
Path(sys.argv[2]).write_bytes(payload.build("ironspan.hybrid.converge"))
"""


def built(folder: Path, before: str = "") -> bytes:
    """Return the payload as built in a process of its own: Ansible's import hooks are not for this one."""
    target = folder / "payload.py"
    run = folder / "run"
    run.mkdir(exist_ok=True)
    subprocess.run([sys.executable, "-c", PROGRAM.format(before=before), str(run), str(target)], check=True)
    return target.read_bytes()


def execute(data: bytes, folder: Path) -> dict[str, t.Any]:
    """Run a payload as a host does, from standard input."""
    before = "params='{\"ANSIBLE_MODULE_ARGS\": {}}'"
    document = {"schema": 1, "resources": [{"kind": "file", "id": "a", "path": "/etc/a", "content": "x"}]}
    arguments = {"ANSIBLE_MODULE_ARGS": {"document": document, "root": str(folder)}}
    assert before in data.decode()
    text = data.decode().replace(before, f"params={json.dumps(arguments)!r}")
    environment = {"PATH": os.environ["PATH"]}
    done = subprocess.run(
        [sys.executable, "-"], input=text, text=True, capture_output=True, env=environment, check=True
    )
    result: dict[str, t.Any] = json.loads(done.stdout)
    return result


def test_the_payload_is_within_its_budget_and_runs(tmp_path: Path) -> None:
    data = built(tmp_path)
    assert len(data) <= BUDGET
    (tmp_path / "etc").mkdir()
    assert execute(data, tmp_path)["changed"]
    assert (tmp_path / "etc/a").read_text() == "x"
    # Compiled code is kept by the run that writes, and used by those after it.
    (kept,) = (tmp_path / "var/lib/ironspan/code").iterdir()
    assert len(list(kept.glob("_engine/__pycache__/engine.*.pyc"))) == 1
    (kept / "_engine/order.py").write_text("raise RuntimeError('not looked at')")
    assert not execute(data, tmp_path)["changed"]
    shutil.rmtree(kept / "_engine/__pycache__")
    with pytest.raises(subprocess.CalledProcessError):
        execute(data, tmp_path)
    shutil.rmtree(kept)
    assert not execute(data, tmp_path)["changed"]
    assert kept.is_dir()
    # A second worker of the same run finds everything done.
    seen = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*")}
    assert abs(len(built(tmp_path)) - len(data)) < 20
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*")} == seen


def test_an_unexpected_cache_is_left_alone(tmp_path: Path) -> None:
    data = built(tmp_path, before="payload.compact = None")
    (tmp_path / "etc").mkdir()
    assert execute(data, tmp_path)["changed"]
