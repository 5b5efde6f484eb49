# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What the controller may ask the engine's code on a host to do."""

from __future__ import annotations

import json
import typing as t

Result = t.Dict[str, t.Any]
Parameters = t.Mapping[str, t.Any]

MODES = ("apply", "assess", "rollback", "history", "confirm", "revert")
NEED_A_DOCUMENT = ("apply", "assess")
TYPES: t.Mapping[str, t.Tuple[type, str]] = {
    "document": (dict, "a mapping"),
    "layers": (list, "a list"),
    "mode": (str, "a text"),
    "secrets": (dict, "a mapping"),
    "certificates": (dict, "a mapping"),
    "mirror": (str, "a text"),
    "plan": (str, "a text"),
    "release": (dict, "a mapping"),
    "trial": (dict, "a mapping"),
    "to": (str, "a text"),
    "unlike": (dict, "a mapping"),
    "root": (str, "a path"),
}
"""Parameters of ``converge``."""


def converge(parameters: Parameters, check_mode: bool, diff: bool) -> Result:
    """Make the host match a document, or do what else ``mode`` says; see ``_engine.engine.run``."""
    given = {name: value for name, value in parameters.items() if value is not None}
    problems = [f"{name} is no parameter" for name in given if name not in TYPES]
    for name in ("document", "layers"):
        # From the command line of ansible, both are texts.
        if isinstance(given.get(name), str):
            given[name] = _read(name, given[name])
    problems += [
        f"{name} is {given[name]!r:.80}; write {what}"
        for name, (kind, what) in TYPES.items()
        if name in given and not isinstance(given[name], kind)
    ]
    mode = given.get("mode") or "apply"
    if mode not in MODES:
        problems.append(f"mode is {mode!r}; write one of {', '.join(MODES)}")
    if mode in NEED_A_DOCUMENT and "document" not in given:
        problems.append(f"mode {mode} needs a document")
    if problems:
        return {"failed": True, "changed": False, "msg": ". ".join(problems)}
    from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.engine import run

    return run(given, check_mode=check_mode, diff=diff)


def _read(name: str, text: str) -> t.Any:
    if name == "layers":
        return [part.strip() for part in text.split(",") if part.strip()]
    try:
        return json.loads(text)
    except ValueError:
        return text


def host_health(parameters: Parameters, check_mode: bool, diff: bool) -> Result:
    """Look around; nothing is changed."""
    from ansible_collections.ironspan.hybrid.plugins.module_utils._health import look

    document = parameters.get("document")
    given = {**parameters, "document": json.loads(document) if isinstance(document, str) else document}
    return {"changed": False, "health": look(given)}


def certificates(parameters: Parameters, check_mode: bool, diff: bool) -> Result:
    """Return the certificates that are there; nothing is changed."""
    from ansible_collections.ironspan.hybrid.plugins.module_utils import _certificates

    return {"changed": False, **_certificates.read(parameters.get("root") or "/")}


def attest(parameters: Parameters, check_mode: bool, diff: bool) -> Result:
    """Ask the TPM; nothing is changed."""
    from ansible_collections.ironspan.hybrid.plugins.module_utils import _attest

    try:
        return {"changed": False, "attestation": _attest.attest(parameters)}
    except _attest.TpmError as error:
        return {"failed": True, "changed": False, "msg": str(error)}


PROGRAMS: t.Mapping[str, t.Callable[[Parameters, bool, bool], Result]] = {
    "converge": converge,
    "host_health": host_health,
    "certificates": certificates,
    "attest": attest,
}
