# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A smaller payload: what Ansible sends to each host, without documentation, comments and deep indentation.

Ansible packs a module and everything it imports into a zip, once a run, and keeps it in the run's private
cache; every worker sends it from there. Texts for readers of the repository are left out, which makes
the payload a third smaller, which counts on a WAN. So are the types of parameters and results of this
collection's functions, which nothing asks for at run time. Code keeps its lines, so tracebacks stay true.
"""

from __future__ import annotations

import ast
import base64
import dataclasses
import fcntl
import hashlib
import io
import tokenize
import typing as t
import zipfile
from pathlib import Path

from ansible import constants
from ansible.executor import module_common
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from ansible.utils.display import Display

COMPRESSION = "ZIP_DEFLATED"
OWN = "ansible_collections/ironspan/"
BYTECODE = "/module_utils/_bytecode.py"
_FOR_READERS = frozenset({"DOCUMENTATION", "EXAMPLES", "RETURN"})
"""What ansible-doc reads in a module."""


def shortened(source: str, types: bool = True) -> str:
    """Return Python source, narrowly indented, with empty lines for documentation and whole-line comments.

    Four spaces of indentation become one.

    Args:
        source: the text of a module.
        types: keep the types of functions' parameters, results and own names.

    Returns:
        Text that compiles to the same code on every Python that the original does, but for ``__doc__``,
        the texts of ansible-doc, and ``__annotations__`` of functions where types are not kept.

    Raises:
        SyntaxError: it is not Python of the running version.
    """
    lines = source.splitlines(keepends=True)
    # Only statements are looked at: visiting every expression as well takes ten times as long.
    blocks: list[tuple[t.Any, bool]] = [(ast.parse(source), False)]
    untyped: list[tuple[int, int, int]] = []
    while blocks:
        node, local = blocks.pop()
        if not types and local and isinstance(node, ast.AnnAssign):
            untyped += _type_of_a_local(node)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in node.body:
                _blank(statement, lines)
            if not types and not isinstance(node, ast.Module | ast.ClassDef):
                untyped += _types(node, lines)
            # Types of a class's own names are fields to named tuples.
            local = not isinstance(node, ast.Module | ast.ClassDef)
        for part in ("body", "handlers", "orelse", "finalbody", "cases"):
            blocks.extend((inner, local) for inner in getattr(node, part, ()))
    # From the right, so that what is left of them keeps its place.
    for row, start, end in sorted(untyped, reverse=True):
        line = lines[row].encode()
        lines[row] = (line[:start] + line[end:]).decode()
    text = "".join(lines)
    within_text: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        row, column = token.start
        within_text.update(range(row, token.end[0]))
        if token.type == tokenize.COMMENT and not lines[row - 1][:column].strip():
            lines[row - 1] = "\n"
    return "".join(line if row in within_text else _narrow(line) for row, line in enumerate(lines))


def _type_of_a_local(node: ast.AnnAssign) -> list[tuple[int, int, int]]:
    """Return where the type of a function's own name is that gets a value; Python does not look at it."""
    kind, name = node.annotation, node.target
    if node.value is None or not isinstance(name, ast.Name) or name.lineno != kind.end_lineno:
        return []
    return [(name.lineno - 1, name.end_col_offset or 0, kind.end_col_offset or 0)]


def _types(function: ast.FunctionDef | ast.AsyncFunctionDef, lines: list[str]) -> list[tuple[int, int, int]]:
    """Return row, first and last column, in bytes, of the types in a function's head that lie in one line."""
    found = []
    given = function.args
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    for argument in every:
        kind = argument.annotation if argument else None
        if argument and kind and argument.lineno == kind.end_lineno:
            start = argument.col_offset + len(argument.arg.encode())
            found.append((argument.lineno - 1, start, kind.end_col_offset or 0))
    if function.returns and function.returns.lineno == function.returns.end_lineno:
        row = function.returns.lineno - 1
        # Whatever follows a type is a colon, and before it nothing but the arrow and spaces.
        start = lines[row].encode().rfind(b"->", 0, function.returns.col_offset)
        if start >= 0:
            found.append((row, start, function.returns.end_col_offset or 0))
    return found


def _narrow(line: str) -> str:
    code = line.lstrip(" ")
    depth = len(line) - len(code)
    return " " * (depth // 4 + depth % 4) + code


def _blank(statement: ast.stmt, lines: list[str]) -> None:
    """Replace documentation by an empty string: without one a body might be empty."""
    value = statement.value if isinstance(statement, ast.Expr | ast.Assign) else None
    if not isinstance(value, ast.Constant) or not isinstance(value.value, str):
        return
    name = ""
    if isinstance(statement, ast.Assign):
        name = ast.unparse(statement.targets[0])
        if name not in _FOR_READERS:
            return
    first, last = statement.lineno - 1, (statement.end_lineno or statement.lineno) - 1
    # The parser counts columns in bytes.
    before = lines[first].encode()[: statement.col_offset]
    after = lines[last].encode()[statement.end_col_offset :]
    if before.strip() or after.strip():
        return
    assigned = f"{name} = " if name else ""
    lines[first : last + 1] = [f'{before.decode()}{assigned}""\n', *["\n"] * (last - first)]


def compact(archive: bytes) -> bytes:
    """Return a zip of Python modules without docstrings, packed as tightly as possible."""
    packed = io.BytesIO()
    identity = hashlib.sha256()
    with (
        zipfile.ZipFile(io.BytesIO(archive)) as source,
        zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as target,
    ):
        # The module that holds the identity comes last, when all the others have been seen.
        for info in sorted(source.infolist(), key=lambda info: info.filename.endswith(BYTECODE)):
            data = source.read(info)
            if info.filename.endswith(".py"):
                # Of others it is not known that nothing asks.
                types = not info.filename.startswith(OWN)
                data = shortened(data.decode("utf-8"), types).encode("utf-8")
            identity.update(f"{info.filename} {len(data)}\n".encode() + data)
            if info.filename.endswith(BYTECODE):
                data = data.replace(b'IDENTITY = ""', f'IDENTITY = "{identity.hexdigest()}"'.encode())
            fresh = zipfile.ZipInfo(info.filename, info.date_time)
            fresh.compress_type = zipfile.ZIP_DEFLATED
            target.writestr(fresh, data, compresslevel=9)
    return packed.getvalue()


def prepare(module: str) -> None:
    """Make Ansible send the small payload of a module for the rest of this run.

    To be called before the module is executed; what is done already costs one look at the file system. If
    Ansible's cache is not as expected, nothing is changed and the ordinary payload is sent.

    Args:
        module: fully qualified name, such as ``ironspan.hybrid.converge``.
    """
    namespace, collection, name = module.split(".")
    folder = Path(constants.DEFAULT_LOCAL_TMP) / "ansiballz_cache"
    cached = (
        folder / f"ansible_collections.{namespace}.{collection}.plugins.modules.{name}-{COMPRESSION}-none"
    )
    done = cached.with_name(cached.name + ".compact")
    if done.exists() or constants.DEFAULT_MODULE_COMPRESSION != COMPRESSION:
        return
    try:
        folder.mkdir(exist_ok=True)
        with cached.with_name(cached.name + ".compact-lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                _rewrite(module, cached)
                done.touch()
    except Exception as error:
        Display().vv(f"{module} is sent as Ansible packs it: {type(error).__name__}: {error}")


def _rewrite(module: str, cached: Path) -> None:
    if not cached.exists():
        build(module)
    entry: t.Any = module_common._CachedModule.load(str(cached))
    small = base64.b64encode(compact(base64.b64decode(entry.zip_data)))
    if len(small) < len(entry.zip_data):
        dataclasses.replace(entry, zip_data=small).dump(str(cached))


def build(module: str) -> bytes:
    """Return the payload of a module with no arguments, as Ansible would send it; also fills the run's cache.

    Args:
        module: fully qualified name, in this collection.
    """
    built: t.Any = module_common.modify_module(
        module_name=module,
        # Not resolved: Ansible reads the collection's name from the path.
        module_path=str(Path(__file__).parent.parent / "modules" / f"{module.rpartition('.')[2]}.py"),
        module_args={},
        templar=Templar(DataLoader()),
        task_vars={"ansible_python_interpreter": "/usr/bin/python3"},
        module_compression=COMPRESSION,
    )
    data: bytes = built.b_module_data
    return data
