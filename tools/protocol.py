# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Generates the Python code of the etcd client's messages: ``python -m tools.protocol``.

A test fails when what is committed differs from what the .proto file gives now.
"""

from __future__ import annotations

import pathlib
import sys
import tempfile

from grpc_tools import protoc

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCE = pathlib.Path("ironspan/etcd/rpc.proto")
HEADER = """\
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""
FUTURE = "from __future__ import annotations\n"


def generated(root: pathlib.Path = ROOT) -> dict[pathlib.Path, str]:
    """Return the generated files, paths relative to the repository, and their text.

    Args:
        root: the repository.

    Returns:
        The module and its type stub, each with the licence's header.

    Raises:
        RuntimeError: the .proto file does not compile; the compiler said why on stderr.
    """
    with tempfile.TemporaryDirectory() as folder:
        options = [f"-I{root}", f"--python_out={folder}", f"--pyi_out={folder}", str(SOURCE)]
        if protoc.main(["protoc", *options]):
            raise RuntimeError(f"{SOURCE} does not compile")
        result = {}
        for suffix in (".py", ".pyi"):
            path = SOURCE.with_name(f"{SOURCE.stem}_pb2{suffix}")
            text = (pathlib.Path(folder) / path).read_text()
            text = text.removeprefix("# -*- coding: utf-8 -*-\n")
            if suffix == ".py":
                text = text.replace("\nfrom google", f"\n{FUTURE}from google", 1)
            result[path] = HEADER + text
        return result


def main() -> int:
    """Write the generated files; return the exit status."""
    for path, text in generated().items():
        (ROOT / path).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
