# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""One host: send the document, sign what the host asks for, send the certificates."""

from __future__ import annotations

import dataclasses
import json
import time
import typing as t
from collections.abc import Callable, Mapping, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.errors import ActionableError

Result = dict[str, t.Any]
Execute = Callable[[dict[str, t.Any]], Result]
"""Runs the module on the host with these parameters."""
Sign = Callable[[str, str, dict[str, t.Any]], str]
"""Called with (request PEM, profile, what is expected); returns the certificate PEM."""


class ExchangeError(ActionableError):
    """The controller cannot go on; both parts are clauses without a full stop."""


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """What is asked of one host.

    Args:
        document: its document as JSON. It goes to the module as text: Ansible would walk through a structure
            again and again, which costs more than everything else here.
        mode: ``assess`` or ``apply``.
        mirror: base URL of its mirror.
        secrets: secrets by name.
        check_mode: nothing is signed, because nothing is changed.
        root: folder to treat as the host's root; for tests.
        plan: digest of the plan that is applied, for the host to remember.
        layers: those of the document that this is about; all of them when empty. The host is sent the whole
            document, because that is what it keeps.
        more: other parameters of the module: ``release``, ``trial``, ``to``.
        composed: the host made up the document, and nothing is signed that only the host asks for.
    """

    document: str
    mode: str
    mirror: str
    secrets: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    check_mode: bool = False
    root: str = "/"
    plan: str = ""
    layers: Sequence[str] = ()
    more: Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    composed: bool = False


def only_layers(document: str, layers: Sequence[str]) -> str:
    """Return a document that has only some of its layers; order and everything else stay.

    A layer with a slash is one resource of a layer: its id, in which a last ``*`` stands for anything. What
    it refers to in its own layer counts as settled then.

    Raises:
        ExchangeError: none of the layers is in the document's host.
    """
    # Imported late: most executions are about the whole document. The host leaves out the same.
    from ansible_collections.ironspan.hybrid.plugins.module_utils._engine import document as documents

    content = json.loads(document)
    kept = documents.only_layers(content, layers)
    return document if kept is content else json.dumps(kept)


def exchange(request: Request, execute: Execute, sign: Sign) -> Result:
    """Run the module once, and once more with certificates when the host asked for some.

    Args:
        request: what is asked.
        execute: runs the module.
        sign: signs a certificate request.

    Returns:
        The result, of both executions together.
    """
    arguments: dict[str, t.Any] = {
        "document": request.document,
        "mode": request.mode,
        "mirror": request.mirror,
        "secrets": dict(request.secrets),
    }
    if request.root != "/":
        arguments["root"] = request.root
    if request.plan:
        arguments["plan"] = request.plan
    if request.layers:
        arguments["layers"] = list(request.layers)
    arguments.update({name: value for name, value in request.more.items() if value})
    result = execute(arguments)
    requests = result.get("csrs") or {}
    failed = result.get("failed") or result.get("unreachable")
    if failed or not requests or request.mode != "apply" or request.check_mode:
        return result
    if request.composed:
        return result
    certificates = sign_all(json.loads(request.document), requests, sign)
    second = execute({**arguments, "certificates": certificates})
    return combined(result, second)


def sign_all(document: Mapping[str, t.Any], requests: Mapping[str, str], sign: Sign) -> dict[str, str]:
    """Sign a host's requests as its document says, and only those.

    Args:
        document: the document that was sent.
        requests: certificate resource to request PEM, as the host answered.
        sign: signs one.

    Returns:
        Certificate resource to certificate PEM.

    Raises:
        ExchangeError: the host asks for something that its document does not have.
    """
    resources = {resource["id"]: resource for resource in document["resources"]}
    signed: dict[str, str] = {}
    for name, request in requests.items():
        resource = resources.get(name)
        if resource is None or resource.get("kind") not in ("certificate", "kubelet_certificate"):
            raise ExchangeError(
                f"the host asks for a certificate {name!r}, which its document does not have",
                "look into what runs there: only ironspan's own module answers here",
            )
        if resource["kind"] == "kubelet_certificate":
            # The key is the kubelet's own choice.
            expected = dict(resource["csr"])
        else:
            key = resources.get(resource["key"], {})
            expected = {**key.get("csr", {}), "algorithm": key.get("algorithm", "ecdsa-p256")}
        signed[name] = sign(request, resource["profile"], expected)
    return signed


def combined(first: Result, second: Result) -> Result:
    """Return two results of one task as one."""
    if second.get("unreachable"):
        return second
    result = {**first, **second}
    result["changed"] = bool(first.get("changed") or second.get("changed"))
    result["resumed"] = bool(first.get("resumed") or second.get("resumed"))
    result["changes"] = [*(first.get("changes") or ()), *(second.get("changes") or ())]
    result["timings"] = _added(first.get("timings") or {}, second.get("timings") or {})
    if "diff" in first or "diff" in second:
        result["diff"] = [*(first.get("diff") or ()), *(second.get("diff") or ())]
    return result


def _added(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}


class Stopwatch:
    """Wraps ``execute`` and remembers the controller's clock around the first execution."""

    def __init__(self, execute: Execute, clock: Callable[[], float] = time.time) -> None:
        self._execute = execute
        self._clock = clock
        self.started: float | None = None
        self.ended: float | None = None

    def __call__(self, arguments: dict[str, t.Any]) -> Result:
        """Run the module."""
        started = self._clock()
        try:
            return self._execute(arguments)
        finally:
            if self.started is None:
                self.started, self.ended = started, self._clock()
