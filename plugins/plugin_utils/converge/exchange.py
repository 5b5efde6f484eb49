# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""One host: send the document, sign what the host asks for, send the certificates."""

from __future__ import annotations

import dataclasses
import json
import time
import typing as t
from collections.abc import Callable, Collection, Mapping, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.errors import ActionableError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.layers import all_layers

Result = dict[str, t.Any]
Execute = Callable[[dict[str, t.Any]], Result]
"""Runs the module on the host with these parameters."""
Sign = Callable[[str, str, dict[str, t.Any]], str]
"""Called with (request PEM, profile, what is expected); returns the certificate PEM."""
Attest = Callable[[Mapping[str, t.Any], Collection[str]], list[str]]
"""Called with the document and the resources whose certificates are asked for; returns warnings, and raises
ExchangeError where the host's TPM does not prove what the document wants."""
JOIN_INPUT = "join"
"""One-time input of the resource kind ``kubeadm``: it is this host's turn to join."""
JOINS = ("node/join", "control_plane/member")
"""The resources that make a host part of its cluster."""
LONGEST_REQUEST = 4096
"""Characters of a certificate request in PEM; an RSA key and a few names take half of it."""
OF_NODES = ("kubelet_certificate", "kubeadm")
"""Kinds of resources that ask for a node's certificate."""


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
        certificates: signed already, by the id of their resource.
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
    certificates: Mapping[str, str] = dataclasses.field(default_factory=dict)
    check_mode: bool = False
    root: str = "/"
    plan: str = ""
    layers: Sequence[str] = ()
    more: Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    composed: bool = False


def layers_asked(arguments: Mapping[str, t.Any]) -> list[str]:
    """Return the layers that the action's arguments are about; all of the host's when there are none.

    Args:
        arguments: ``layers``, a list or names with commas between, or ``phase``, those that it converges.
            With ``mode: rollback`` those that go back with them come too.

    Raises:
        ExchangeError: both are there.
        SiteError: there is no such phase.
    """
    value, phase = arguments.get("layers") or [], arguments.get("phase")
    if phase and value:
        raise ExchangeError("phase and layers exclude each other", "write one of them")
    if phase:
        return all_layers().in_phase(str(phase))
    asked = [part.strip() for part in value.split(",")] if isinstance(value, str) else [str(v) for v in value]
    if arguments.get("mode") != "rollback":
        return asked
    return asked + [
        layer.name
        for layer in all_layers().layers.values()
        if layer.name not in asked and not set(asked).isdisjoint(layer.back_with)
    ]


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


def exchange(request: Request, execute: Execute, sign: Sign, attest: Attest) -> Result:
    """Run the module once, and once more with certificates when the host asked for some.

    Args:
        request: what is asked.
        execute: runs the module.
        sign: signs a certificate request.
        attest: asks the host's TPM where the document says so, before anything is signed.

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
    if request.certificates:
        arguments["certificates"] = dict(request.certificates)
    arguments.update({name: value for name, value in request.more.items() if value})
    result = execute(arguments)
    requests = result.get("csrs") or {}
    failed = result.get("failed") or result.get("unreachable")
    if failed or request.mode != "apply" or request.check_mode:
        return result
    document = json.loads(request.document) if requests else {}
    if JOIN_INPUT not in request.secrets and requests:
        later = requests_of_joins(document, requests)
        requests = {name: text for name, text in requests.items() if name not in later}
    if requests and not request.composed:
        warnings = attest(document, requests)
        certificates = {**request.certificates, **sign_all(document, requests, sign)}
        result = combined(result, execute({**arguments, "certificates": certificates}))
        if warnings:
            result["warnings"] = [*(result.get("warnings") or ()), *warnings]
    if JOIN_INPUT in request.secrets and not (result.get("failed") or result.get("unreachable")):
        _insist_on_the_join(result)
    return result


def requests_of_joins(document: Mapping[str, t.Any], requests: Mapping[str, t.Any]) -> dict[str, str]:
    """Return those of a host's requests that it wants to join with, which are signed when it is its turn.

    Args:
        document: the host's.
        requests: resource to request PEM, as the host answered.
    """
    joins = {resource["id"] for resource in document["resources"] if resource.get("kind") == "kubeadm"}
    return {
        name: text
        for name, text in requests.items()
        if name in joins and isinstance(text, str) and len(text) <= LONGEST_REQUEST
    }


def _insist_on_the_join(result: Result) -> None:
    for entry in result.get("pending") or ():
        if entry["needs"] == f"certificate:{entry['resource']}" and entry["resource"] in JOINS:
            raise ExchangeError(
                f"{entry['resource']}: the host was told to join, and asks again for the certificate it got",
                "run again; if it stays so, look into what runs there, or make a new plan if this was one "
                "of an earlier release",
            )


def sign_all(document: Mapping[str, t.Any], requests: Mapping[str, str], sign: Sign) -> dict[str, str]:
    """Sign a host's requests as its document says, and only those.

    Args:
        document: the document that was sent.
        requests: certificate resource to request PEM, as the host answered.
        sign: signs one.

    Returns:
        Certificate resource to certificate PEM.

    Raises:
        ExchangeError: the host asks for something that its document does not have, or the document lets it
            ask for another node's.
    """
    node = f"system:node:{document.get('host')}"
    resources = {resource["id"]: resource for resource in document["resources"]}
    signed: dict[str, str] = {}
    for name, request in requests.items():
        resource = resources.get(name)
        if resource is None or resource.get("kind") not in ("certificate", *OF_NODES):
            raise ExchangeError(
                f"the host asks for a certificate {name!r}, which its document does not have",
                "look into what runs there: only ironspan's own module answers here",
            )
        if resource["kind"] in OF_NODES:
            # The key is the host's own choice, the name is not.
            expected = dict(resource["csr"])
            if expected.get("common_name") != node:
                asked = expected.get("common_name")
                raise ExchangeError(
                    f"the document asks in {name} for {asked!r}, and its host is {node!r}",
                    "make a new plan: no role writes such a document",
                )
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
