# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What is sent to a host: what to do, and the engine's code only where the host does not have it.

The module that is sent brings none of Ansible's code along (that alone is 167 kB), only what checks and runs
the engine that an earlier run has kept on the host (``module_utils/_kept.py``). A host that lacks this engine
answers so, and is asked again with the engine at once.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import typing as t
import zlib
from collections.abc import Mapping
from pathlib import Path

from ansible.module_utils.common.json import Direction, get_module_encoder

MODULE = "ironspan.hybrid.engine"
SENT_ALWAYS = ("_start.py", "_kept.py", "_system/paths.py")
"""What checks the engine on a host."""
PROGRAMS = "_programs"
"""Programs of their own, which roles install; no part of the engine."""
LONGEST_WORD = 300
"""Characters of what a host says about its engine that are shown."""
_CODE = Path(__file__).parent.parent / "module_utils"

Result = dict[str, t.Any]


class Execute(t.Protocol):
    """``_execute_module`` of Ansible's actions."""

    def __call__(
        self, module_name: str, module_args: dict[str, t.Any], task_vars: dict[str, t.Any]
    ) -> dict[str, t.Any]:
        """Run a module on the task's host."""


class Engine(t.NamedTuple):
    """The engine's code: its SHA-256, its texts as they are sent, and those that check it."""

    digest: str
    packed: str
    sent_always: dict[str, str]


@functools.cache
def engine() -> Engine:
    """Return the engine: ``module_utils``. Read once, by the process that starts workers."""
    files = sorted(path for path in _CODE.rglob("*.py") if path.parent.name != PROGRAMS)
    texts = {path.relative_to(_CODE).as_posix(): path.read_text("utf-8") for path in files}
    data = json.dumps(texts, sort_keys=True).encode("ascii")
    sent_always = {name: texts[name] for name in SENT_ALWAYS}
    return Engine(hashlib.sha256(data).hexdigest(), _packed(data), sent_always)


def _packed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data)).decode("ascii")


def question(program: str, parameters: Mapping[str, t.Any], keep: bool) -> dict[str, t.Any]:
    """Return the arguments of the module that ask a host to run a program; see ``execute``."""
    # Values that came from templates have types of Ansible's own.
    encoder = get_module_encoder("legacy", Direction.CONTROLLER_TO_MODULE)
    request = {
        "program": program,
        "parameters": dict(parameters),
        "digest": engine().digest,
        "code": engine().sent_always,
        "keep": keep,
    }
    return {"request": _packed(json.dumps(request, cls=encoder).encode("ascii"))}


def execute(
    run: Execute,
    program: str,
    parameters: Mapping[str, t.Any],
    variables: dict[str, t.Any],
    keep: bool,
    at_once: bool = False,
) -> Result:
    """Run a program of the engine on a host: one execution, two if the host lacks the engine.

    Args:
        run: ``_execute_module`` of the action.
        program: its name in ``module_utils/_entry.py``.
        parameters: of the program.
        variables: of the host.
        keep: let the host keep an engine that it lacked; not in check mode.
        at_once: send the engine with the first question, because the host most likely lacks it.

    Returns:
        The program's answer, with a warning if what the host had kept was not used.
    """
    arguments = question(program, parameters, keep)
    lacks: str | None = ""
    if not at_once:
        answer = run(MODULE, module_args=dict(arguments), task_vars=variables)
        lacks = _word(answer, "lacks")
        if lacks is None:
            return answer
    answer = run(MODULE, module_args={**arguments, "engine": engine().packed}, task_vars=variables)
    if _word(answer, "lacks") is not None:
        text = "This host was sent the engine and says it has none. Look into what runs there."
        return {"failed": True, "changed": False, "msg": text}
    host, trouble = variables["inventory_hostname"], _word(answer, "trouble")
    words = []
    if lacks:
        then = "It is replaced." if keep and not trouble else "It is left as it is."
        words.append(f"{host}: the engine kept there was not run: {lacks}. {then}")
    if trouble:
        words.append(f"{host} cannot keep the engine and is sent it each time: {trouble}.")
    if words:
        answer["warnings"] = [*(answer.get("warnings") or ()), *words]
    return answer


def _word(answer: t.Any, name: str) -> str | None:
    """Return what a host says about its engine, in one line of printable characters; None if nothing."""
    said = answer.get("engine") if isinstance(answer, Mapping) else None
    text = said.get(name) if isinstance(said, Mapping) else None
    if not isinstance(text, str):
        return None
    return "".join(letter if letter.isprintable() else "?" for letter in text[:LONGEST_WORD])
