#!/usr/bin/python
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Runs a program of this collection on a host, from code that is kept there."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: engine
short_description: Run the host's part of other modules of this collection
version_added: "0.3.0"
description:
  - The actions C(ironspan.hybrid.converge), C(ironspan.hybrid.host_health) and
    C(ironspan.hybrid.certificates) send it; no playbook calls it. It brings none of Ansible's own code along.
author:
  - The ironspan developers
options:
  request:
    description: What to run, packed by the action.
    type: str
    required: true
  engine:
    description: The engine's code, packed by the action, for a host that lacks it.
    type: str
"""

EXAMPLES = r"""
- name: Use the module that sends it
  ironspan.hybrid.converge:
"""

RETURN = r"""
engine:
  description: What is wrong with the code that is kept on the host.
  returned: when something is
  type: dict
"""

import os
import sys


def main() -> None:
    """Unpack the request and run it."""
    # Files beside this program, or where it happens to be run, are no modules.
    beside = [os.path.realpath(sys.argv[0]).rpartition("/")[0]] if sys.argv[0] not in ("", "-") else []
    sys.path[:] = [path for path in sys.path if path not in ("", ".", *beside)]

    import base64
    import json
    import typing
    import zlib

    if sys.version_info < (3, 9):  # noqa: UP036
        found = ".".join(str(number) for number in sys.version_info[:3])
        print(json.dumps({"failed": True, "msg": f"Python is {found} here; install 3.9 or newer"}))
        sys.exit(1)
    try:
        os.getcwd()  # noqa: PTH109
    except OSError:
        os.chdir("/")
    # Ansible writes its JSON here: ASCII, and never three quotation marks in a row.
    given = json.loads(r"""<<INCLUDE_ANSIBLE_MODULE_JSON_ARGS>>""")

    def unpacked(name: str) -> str:
        return zlib.decompress(base64.b64decode(given.pop(name))).decode("ascii")

    if "request" not in given:
        print(json.dumps({"failed": True, "msg": "no request; use ironspan.hybrid.converge"}))
        sys.exit(1)
    request = json.loads(unpacked("request"))
    if given.get("engine"):
        request["engine"] = unpacked("engine")
    texts = request["code"]
    names: dict[str, typing.Any] = {"__name__": "start"}
    exec(compile(texts["_start.py"], "ironspan/_start.py", "exec", dont_inherit=True), names)
    kept = names["start"](texts, "_kept")
    kept.answer(kept.main(request, given, texts))


if __name__ == "__main__":
    main()
