# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a request to the blob service does, and which role action it needs.

The table follows "Permissions for calling data operations" of the Blob service REST reference.
"""

from __future__ import annotations

import ipaddress
import urllib.parse
from dataclasses import dataclass
from typing import Literal

#: What an operation does to a blob that is there, as far as retention policies care.
Effect = Literal["read", "put", "block", "append", "change", "delete", "lease", "tags", "other"]
_READ, _WRITE, _DELETE, _ADD = "blobs/read", "blobs/write", "blobs/delete", "blobs/add"
#: (method, comp) of a request for a blob -> action, effect. A request that is not here is refused.
_BLOB: dict[tuple[str, str], tuple[str, Effect]] = {
    ("GET", ""): (_READ, "read"),
    ("HEAD", ""): (_READ, "read"),
    ("GET", "metadata"): (_READ, "read"),
    ("HEAD", "metadata"): (_READ, "read"),
    ("GET", "blocklist"): (_READ, "read"),
    ("GET", "tags"): (_READ, "read"),
    ("PUT", ""): (_WRITE, "put"),
    ("PUT", "blocklist"): (_WRITE, "put"),
    ("PUT", "block"): (_WRITE, "block"),
    ("PUT", "appendblock"): (_ADD, "append"),
    ("PUT", "metadata"): (_WRITE, "change"),
    ("PUT", "properties"): (_WRITE, "change"),
    ("PUT", "snapshot"): (_WRITE, "change"),
    ("PUT", "seal"): (_WRITE, "change"),
    ("PUT", "tags"): (_WRITE, "tags"),
    ("PUT", "tier"): (_WRITE, "tags"),
    ("PUT", "lease"): (_WRITE, "lease"),
    ("DELETE", ""): (_DELETE, "delete"),
}
_CONTAINER: dict[tuple[str, str], tuple[str, Effect]] = {
    ("GET", ""): ("containers/read", "other"),
    ("HEAD", ""): ("containers/read", "other"),
    ("GET", "metadata"): ("containers/read", "other"),
    ("HEAD", "metadata"): ("containers/read", "other"),
    ("GET", "list"): (_READ, "read"),
    ("PUT", ""): ("containers/write", "other"),
    ("PUT", "metadata"): ("containers/write", "other"),
    ("PUT", "lease"): ("containers/write", "other"),
    ("DELETE", ""): ("containers/delete", "delete"),
}
_ACCOUNT: dict[tuple[str, str], tuple[str, Effect]] = {
    ("GET", "list"): ("containers/read", "other"),
    ("GET", "properties"): ("containers/read", "other"),
}


@dataclass(frozen=True)
class Operation:
    """One request, understood."""

    account: str
    container: str
    blob: str
    method: str
    comp: str
    action: str
    effect: Effect

    @property
    def path(self) -> str:
        """Container and blob as faults name them: /CONTAINER/BLOB."""
        return "/" + "/".join(part for part in (self.container, self.blob) if part)

    @property
    def lists_blobs(self) -> bool:
        """Whether it lists a container."""
        return bool(self.container) and not self.blob and self.comp == "list"


def split(host: str, path: str) -> tuple[str, str, str]:
    """Return account, container and blob of a request, in either URL style.

    Args:
        host: The Host header; `ACCOUNT.blob.core.windows.net`, or an address when the account is in the path.
        path: The decoded path.
    """
    name = host.rpartition(":")[0] if ":" in host else host
    try:
        ipaddress.ip_address(name)
        in_path = True
    except ValueError:
        in_path = "." not in name
    rest = path.lstrip("/")
    account = name.partition(".")[0]
    if in_path:
        account, _, rest = rest.partition("/")
    container, _, blob = rest.partition("/")
    return account, container, blob


def understand(method: str, host: str, target: str) -> Operation | None:
    """Return what a request does, or None when it is none that an identity of the lab may ask for."""
    raw, _, text = target.partition("?")
    query = dict(urllib.parse.parse_qsl(text, keep_blank_values=True))
    account, container, blob = split(host, urllib.parse.unquote(raw))
    comp = query.get("comp", "")
    table = _BLOB if blob else (_CONTAINER if container else _ACCOUNT)
    known = table.get((method, comp))
    return known and Operation(account, container, blob, method, comp, *known)
