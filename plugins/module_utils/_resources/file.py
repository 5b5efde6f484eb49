# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kind ``file``: a file with its content, owner and mode; the content may be a secret."""

from __future__ import annotations

import hashlib
import os
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._system import accounts, files, holders, paths
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import (
    Change,
    Field,
    Host,
    Pending,
    ResourceError,
    Spec,
    State,
)

SECRET = "(secret)"

LARGEST_READ_BYTES = 8 << 20
"""A larger file is surely not the one that the document describes; it is not read to find out."""


class FileKind:
    """Replaces a file in one step. The content is ``content``, or the secret that ``secret`` names."""

    name = "file"
    fields: t.Mapping[str, Field] = {
        "path": Field((str,), required=True),
        "content": Field((str,)),
        "secret": Field((str,)),
        "force_replace": Field((bool,), default=True),
        "idle": Field((list,), default=()),
        **accounts.ownership_fields("0644"),
    }

    def check(self, spec: Spec) -> t.List[str]:
        """Exactly one source of the content."""
        mistakes = accounts.mode_mistakes(spec)
        if ("content" in spec) == ("secret" in spec):
            mistakes.append("needs either content or secret")
        if spec["path"].endswith("/"):
            mistakes.append(f"path names a folder: {spec['path']!r}")
        return mistakes

    def compare(self, spec: Spec, host: Host) -> t.Optional[Change]:
        """Compare type, content, mode and owner; without ``force_replace`` content is left alone."""
        path = spec["path"]
        status = files.status_of(host.path(path))
        what = files.kind_of(status)
        if what in ("folder", "other"):
            word = "a folder" if what == "folder" else "no ordinary file"
            raise ResourceError(
                f"{path} exists and is {word}", "Move it away on the host, or choose another path."
            )
        if status is None or what == "link":
            if status is None:
                accounts.need_folder(path, host)
            after = {"state": "file", "mode": spec["mode"], "owner": spec["owner"], "group": spec["group"]}
            _describe(after, _wanted(spec, host), spec)
            if what == "link":
                if not spec["force_replace"]:
                    return None
                return Change(
                    "update",
                    {"state": "link", "target": paths.link_target(host.path(path))},
                    after,
                    "is a link",
                )
            return Change("create", {"state": "absent"}, after, "does not exist")
        before, after = accounts.differences(spec, status, host)
        reasons = list(after)
        if spec["force_replace"] and not self._content_matches(spec, status, host):
            _describe(before, _read(host.path(path)), spec, "(another secret)")
            _describe(after, _wanted(spec, host), spec)
            reasons.insert(0, "content")
        return Change("update", before, after, f"{' and '.join(reasons)} differ") if reasons else None

    def _content_matches(self, spec: Spec, status: os.stat_result, host: Host) -> bool:
        if "secret" not in spec:
            wanted = spec["content"].encode("utf-8")
            return status.st_size == len(wanted) and _read(host.path(spec["path"])) == wanted
        try:
            wanted = host.secret(spec["secret"])
        except Pending:
            # Not carried this time: the file is believed to be the one written from it as long as nobody
            # has touched it since. Its owner and mode are compared like those of any file.
            known = host.note(spec["id"])
            if known.get("signature") == files.signature(status) and known.get("secret") == spec["secret"]:
                return True
            raise
        if _read(host.path(spec["path"])) != wanted:
            return False
        host.remember(spec["id"], {"secret": spec["secret"], "signature": files.signature(status)})
        return True

    def apply(self, spec: Spec, change: Change, host: Host) -> None:
        """Write the new content beside, then rename it; only owner and mode are set when only they differ."""
        path = spec["path"]
        users = holders.holders(host, spec["idle"]) if spec["idle"] else []
        if users:
            raise ResourceError(
                f"{path} does not change while {', '.join(users)} have {' or '.join(spec['idle'])} open",
                "Drain the node and wait until these processes have ended, then run again.",
            )
        real = host.path(path)
        owner = accounts.resolve(spec, host)
        accounts.need_folder(path, host)
        host.backup(path)
        if "content" in change.after or "sha256" in change.after or "state" in change.after:
            files.write_atomically(real, _wanted(spec, host), int(spec["mode"], 8), owner)
        else:
            accounts.set_ownership(real, spec, host)
        if "secret" in spec:
            host.remember(
                spec["id"],
                {"secret": spec["secret"], "signature": files.signature(paths.there(real, follow=False))},
            )

    def undo(self, spec: Spec, change: Change, host: Host) -> None:
        """Nothing: the backup holds all."""


def _wanted(spec: Spec, host: Host) -> bytes:
    if "secret" in spec:
        return host.secret(spec["secret"])
    content: str = spec["content"]
    return content.encode("utf-8")


def _read(path: str) -> t.Optional[bytes]:
    """Return a file's content, None if it is too large to be compared byte by byte."""
    data = paths.read(path, LARGEST_READ_BYTES + 1)
    return data if len(data) <= LARGEST_READ_BYTES else None


def _describe(state: State, data: t.Optional[bytes], spec: Spec, secret: str = SECRET) -> None:
    """Add a content to one side of a change: never a secret, not even its digest; text as text."""
    if "secret" in spec:
        state["content"] = secret
    elif data is None:
        state["sha256"] = f"(more than {LARGEST_READ_BYTES} bytes)"
    else:
        state["sha256"] = hashlib.sha256(data).hexdigest()
        if b"\0" not in data:
            try:
                state["text"] = data.decode("utf-8")
            except UnicodeDecodeError:
                pass


KIND = FileKind()
