# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Which bindings were used, from the audit log of API servers.

RBAC says in every event which binding allowed the request, in an annotation:
``RBAC: allowed by RoleBinding "a/jobs" of ClusterRole "b" to Group "c"`` (kubernetes,
plugin/pkg/auth/authorizer/rbac). Of several that would allow a request it names the first that it finds.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import re
import typing as t
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.identity.grants import Key
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ClusterError

_REASON = re.compile(r'RBAC: allowed by (ClusterRoleBinding|RoleBinding) "([^"]+)" of ')
_GZIP = b"\x1f\x8b"


@dataclasses.dataclass(slots=True)
class Use:
    """How a binding was used.

    Args:
        count: requests that it allowed.
        last: time of the last one, as the log has it (RFC 3339, UTC).
    """

    count: int = 0
    last: str = ""


@dataclasses.dataclass(slots=True)
class Usage:
    """What audit logs say.

    Args:
        since: time of the first event.
        until: time of the last event.
        events: how many there are.
        unread: lines that are no audit events.
        bindings: those that allowed something.
    """

    since: str = ""
    until: str = ""
    events: int = 0
    unread: int = 0
    bindings: dict[Key, Use] = dataclasses.field(default_factory=dict)

    def add(self, line: bytes) -> None:
        """Count one line of a log."""
        try:
            event = json.loads(line)
            time = str(event["requestReceivedTimestamp"])
            reason = (event.get("annotations") or {}).get("authorization.k8s.io/reason", "")
        except (ValueError, KeyError, TypeError, AttributeError):
            self.unread += 1
            return
        self.events += 1
        self.since = min(self.since or time, time)
        self.until = max(self.until, time)
        found = _REASON.match(str(reason))
        if found:
            name, _, namespace = found[2].partition("/")
            use = self.bindings.setdefault((found[1], namespace, name), Use())
            use.count += 1
            use.last = max(use.last, time)


def read_usage(paths: Iterable[str | Path]) -> Usage:
    """Read audit logs of API servers, one JSON object a line; compressed ones (gzip) too.

    Args:
        paths: the files, of all API servers, in any order.

    Raises:
        ClusterError: a file cannot be read, or there is no audit event in any of them.
    """
    usage, names = Usage(), [str(path) for path in paths]
    for name in names:
        try:
            for line in _lines(Path(name)):
                usage.add(line)
        except (OSError, EOFError, zlib.error) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise ClusterError(
                f"{name} cannot be read: {reason}.", "Name audit logs that can be read."
            ) from error
    if not usage.events:
        raise ClusterError(
            f"There is no audit event in {', '.join(names)}.",
            "Name files such as control planes have in /var/log/kubernetes/audit.",
        )
    return usage


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as plain:
        compressed = plain.read(2) == _GZIP
        plain.seek(0)
        stream = t.cast("t.IO[bytes]", gzip.GzipFile(fileobj=plain)) if compressed else plain
        yield from (line for line in stream if line.strip())
