# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The vocabulary that the engine and the resource kinds share.

A resource kind knows one sort of thing on a host (a file, a unit, ...). It answers four questions and
nothing else: is this specification well formed, what differs from it on this host, make it so, undo it.
Ordering, the journal, rollback and reporting belong to the engine.
"""

from __future__ import annotations

import typing as t

Spec = t.Dict[str, t.Any]
"""One resource of the document: ``kind``, ``id``, optional ``requires``, and the kind's own parameters."""

State = t.Dict[str, t.Any]
"""A JSON-able description of what is, or what shall be. Never a secret: it is shown as ``(secret)``."""


class ResourceError(Exception):
    """A resource cannot be compared or applied.

    Args:
        message: what is wrong, in one sentence.
        remedy: what the operator can do about it, in one sentence.
    """

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


class Pending(Exception):
    """A resource waits for an input that this execution did not carry (a signed certificate, a secret).

    Args:
        needs: ``secret:NAME`` or ``certificate:RESOURCE_ID``.
    """

    def __init__(self, needs: str) -> None:
        super().__init__(needs)
        self.needs = needs


class Change(t.NamedTuple):
    """What a resource needs so that the host matches it.

    ``action`` is one of create, update, delete, install, start, restart, stop, enable, run, upgrade.
    ``before`` and ``after`` describe only what differs; for text they may hold ``text`` (shown as a diff).
    ``reason`` is one short clause for people ("content differs", "required by containerd/config").
    """

    action: str
    before: State
    after: State
    reason: str = ""


class Host(t.Protocol):
    """Everything a kind may touch. The engine hands one in; tests hand in one with a private root."""

    root: str
    mirror: str
    check_mode: bool

    def path(self, path: str) -> str:
        """Return ``path`` (absolute, as in the document) below the root folder."""

    def run(
        self,
        argv: t.Sequence[str],
        check: bool = True,
        stdin: t.Optional[bytes] = None,
        timeout: float = 300,
        env: t.Optional[t.Mapping[str, str]] = None,
        pass_fds: t.Sequence[int] = (),
    ) -> t.Tuple[int, str, str]:
        """Run a program, return (status, stdout, stderr); with ``check`` a failure is a ResourceError.

        Files in ``pass_fds`` stay open for it; it finds them as /dev/fd/NUMBER.
        """

    def secret(self, name: str) -> bytes:
        """Return a secret carried beside the document, or raise Pending."""

    def certificate(self, resource_id: str) -> str:
        """Return the signed PEM chain for a ``certificate`` resource, or raise Pending."""

    def changed(self, resource_id: str) -> bool:
        """Tell whether a resource was changed by this transaction or by an interrupted one before it."""

    def note(self, resource_id: str) -> State:
        """Return what ``remember`` stored for this resource, an empty dict if nothing."""

    def remember(self, resource_id: str, value: State) -> None:
        """Store a small value for this resource in the engine's state (checksum caches). No secrets."""

    def backup(self, path: str) -> None:
        """Keep a copy of a file, link or folder entry (or the fact that there was none) for rollback.

        To be called in ``apply`` before ``path`` is touched. The engine restores it when the transaction
        fails, so most kinds need no ``undo`` of their own.
        """

    def cached(self, key: str, make: t.Callable[[], t.Any]) -> t.Any:
        """Compute something once an execution (for example one ``systemctl show`` for all units)."""

    def forget_cached(self, key: str) -> None:
        """Drop a cached value after changing what it describes."""

    def declared(self, path: str) -> bool:
        """Tell whether the document itself makes this folder, so that it may be absent while planning."""

    def owned(self, path: str) -> bool:
        """Tell whether an earlier run of this engine put ``path`` there (or the folder it lies in)."""

    def set_aside(self, path: str) -> None:
        """Move a whole tree out of the way, at once and so that rollback moves it back.

        The engine deletes it when the transaction commits. It may be called where ``backup`` is too small.
        """

    def offer_csr(self, resource_id: str, pem: str) -> None:
        """Hand a certificate signing request to the controller (the ``csrs`` of the result)."""


class Kind(t.Protocol):
    """The interface of a resource kind; each module in ``_resources`` has one instance called ``KIND``.

    Specifications reach a kind with their defaults filled in. The engine also calls two methods that a kind
    may leave out:

    ``check(spec) -> list of str``: what is wrong with values whose types are right ("mode is not octal"),
    asked before anything is touched.

    ``owns(spec, note) -> list of paths``: its own, where these are not ``path`` or ``key_path``.

    ``removal(spec, paths) -> list of resources``: they take it away, where it is not enough that its paths
    are absent. Attributes say the rest: ``stays``, why it is left instead; ``leaves``, what is left until
    the next boot; ``triable``, False where it changes more than this host.

    ``settle(spec, change, host)``: asked during a rollback, in the document's order, after everything has
    been undone and all files are back (reload and restart a unit with its previous configuration).
    """

    name: str
    fields: t.Mapping[str, Field]

    def compare(self, spec: Spec, host: Host) -> t.Optional[Change]:
        """Read the host and return the change it needs, None if it matches. Never writes.

        May raise Pending when what it needs in order to *apply* is absent and there is something to do.
        """

    def apply(self, spec: Spec, change: Change, host: Host) -> None:
        """Make the host match. Must be repeatable: a killed run is followed by another ``compare``."""

    def undo(self, spec: Spec, change: Change, host: Host) -> None:
        """Reverse what ``backup`` cannot (stop a unit, uninstall a package). Files come back by themselves.

        Called in reverse order of the changes, before this resource's own backups are restored and after
        everything that was changed later has been undone. Must be repeatable and must accept that ``apply``
        may have been interrupted anywhere.
        """


class Field(t.NamedTuple):
    """One parameter of a kind: its Python types, whether it must be there, its default and its choices."""

    types: t.Tuple[type, ...]
    required: bool = False
    default: t.Any = None
    choices: t.Tuple[t.Any, ...] = ()
