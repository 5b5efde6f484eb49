# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kind ``etcd_member``: etcd's configuration, and how a member without data starts.

etcd reads ``initial-cluster`` and ``initial-cluster-state`` only while it has no data. With data they stay as
they are, so that a change of the membership restarts nobody. Without data the controller must say how to
start, because only it can know whether a cluster lives elsewhere.

Once the member has started (the resource with ``settles``), the file says that it joins a cluster of itself
alone. With data that means nothing. Without, should the disk be lost, etcd refuses to start: it can neither
begin a second cluster nor take part under an identity whose promises it has forgotten.
"""

from __future__ import annotations

import json
import os
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import _block_device
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources._write import read_text
from ansible_collections.ironspan.hybrid.plugins.module_utils._system import accounts, files, paths
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import (
    Change,
    Field,
    Host,
    Pending,
    ResourceError,
    Spec,
    State,
)

INPUT = "etcd-membership"
"""One-time input: JSON with ``state`` (new or existing) and ``cluster`` (the value of initial-cluster)."""
KEYS = ("initial-cluster: ", "initial-cluster-state: ")
NOTE = "etcd_member:"
METADATA = 1
"""Type of the record in a write-ahead log that says whose it is (etcd, server/storage/wal, metadataType)."""


def _fields(data: bytes) -> t.Iterator[t.Tuple[int, t.Any]]:
    """Yield the fields of a protobuf message: number, and an int or bytes."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        elif key & 7 == 2:
            size = varint()
            yield key >> 3, data[at : at + size]
            at += size
        else:
            return


def identity(log: bytes) -> State:
    """Return whose a write-ahead log is.

    Args:
        log: the beginning of one of its files.

    Returns:
        ``member`` and ``cluster`` in hexadecimal; empty when the beginning is not understood.
    """
    at = 0
    try:
        while at + 8 <= len(log):
            # A frame: size in 56 bits, then the number of bytes of padding with its highest bit set.
            head = int.from_bytes(log[at : at + 8], "little")
            size, padding = head & ((1 << 56) - 1), (head >> 56) & 7 if head >> 63 else 0
            record = dict(_fields(log[at + 8 : at + 8 + size]))
            if record.get(1) == METADATA:
                found = dict(_fields(record[3]))
                return {"member": f"{found[1]:x}", "cluster": f"{found[2]:x}"}
            if not size:
                break
            at += 8 + size + padding
    except (IndexError, KeyError, TypeError, ValueError):
        pass
    return {}


def data_identity(host: Host, folder: str) -> t.Optional[State]:
    """Return whose data a data folder holds, None when it has none.

    Args:
        host: the host.
        folder: etcd's ``data-dir``.
    """
    logs = host.path(os.path.join(folder, "member", "wal"))
    try:
        names = sorted(name for name in paths.names(logs) if name.endswith(".wal"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not names:
        return None
    return identity(paths.read(os.path.join(logs, names[-1]), 4096))


def split(text: str) -> t.Tuple[str, t.List[str]]:
    """Part a configuration into what the document says and the lines of the first start."""
    lines = text.splitlines(keepends=True)
    initial = [line.rstrip("\n") for line in lines if line.startswith(KEYS)]
    return "".join(line for line in lines if not line.startswith(KEYS)), initial


def initial_lines(cluster: str, state: str) -> t.List[str]:
    """Return the lines of the first start."""
    return [KEYS[0] + cluster, KEYS[1] + state]


def settled_lines(spec: Spec) -> t.List[str]:
    """Return the lines that let only a member with data start."""
    return initial_lines(f"{spec['member']}={spec['peer_url']}", "existing")


class EtcdMemberKind:
    """Writes etcd's configuration; with ``settles`` it only closes the first start in such a file."""

    name = "etcd_member"
    fields: t.Mapping[str, Field] = {
        "path": Field((str,)),
        "settles": Field((str,)),
        "content": Field((str,), default=""),
        "data_dir": Field((str,), required=True),
        "member": Field((str,), required=True),
        "peer_url": Field((str,), required=True),
        "mount": Field((str,), default=""),
        **accounts.ownership_fields("0644"),
    }

    def check(self, spec: Spec) -> t.List[str]:
        """Exactly one file, and no lines of the first start in its content."""
        problems = accounts.mode_mistakes(spec)
        if ("path" in spec) == ("settles" in spec):
            problems.append("needs either path or settles")
        if split(spec["content"])[1]:
            problems.append("content has initial-cluster lines, which are added on the host")
        return problems

    def compare(self, spec: Spec, host: Host) -> t.Optional[Change]:
        """Compare the file; how a member without data starts is an input.

        Raises:
            Pending: there are no data, and the controller has not said how to start; or their disk is not
                mounted yet, so that nobody knows.
            ResourceError: the data are another member's.
        """
        path = spec.get("path") or spec["settles"]
        present = read_text(host, path)
        data = data_identity(host, spec["data_dir"])
        if data is None and spec["mount"] and not self._has_its_disk(spec["mount"], host):
            raise Pending(f"mount:{spec['mount']}")
        if data is not None:
            self._insist_on_own(spec, path, data, host)
        if "settles" in spec:
            return self._settle(spec, present, data, host)
        text, initial = split(present or "")
        lines = (initial if len(initial) == 2 else settled_lines(spec)) if data is not None else None
        if lines is None:
            lines = self._start(spec, path, host)
        wanted = spec["content"] + "".join(f"{line}\n" for line in lines)
        if present is None:
            accounts.need_folder(path, host)
            after: State = {"mode": spec["mode"], "owner": spec["owner"], "group": spec["group"]}
            return Change("create", {"state": "absent"}, {**after, "text": wanted}, "does not exist")
        before, after = accounts.differences(spec, paths.there(host.path(path)), host)
        reasons = list(after)
        if (text, initial) != (spec["content"], lines):
            before["text"], after["text"] = present, wanted
            reasons.insert(0, "content")
        return Change("update", before, after, f"{' and '.join(reasons)} differ") if reasons else None

    def apply(self, spec: Spec, change: Change, host: Host) -> None:
        """Write the file in one step."""
        path = spec.get("path") or spec["settles"]
        host.backup(path)
        data = data_identity(host, spec["data_dir"])
        if "settles" in spec or data is None:
            # Whose data these are is known from now on, or what was known is void.
            host.remember(NOTE + path, data or {})
        if "text" in change.after:
            owner = accounts.resolve(spec, host)
            mode = int(spec["mode"], 8)
            files.write_atomically(host.path(path), change.after["text"].encode(), mode, owner)
        else:
            accounts.set_ownership(host.path(path), spec, host)

    def undo(self, spec: Spec, change: Change, host: Host) -> None:
        """Nothing: the backup holds all."""

    def _settle(
        self, spec: Spec, present: t.Optional[str], data: t.Optional[State], host: Host
    ) -> t.Optional[Change]:
        if data is None or present is None:
            return None
        text, initial = split(present)
        known = host.note(NOTE + spec["settles"]) == data
        if known and initial == settled_lines(spec):
            return None
        wanted = text + "".join(f"{line}\n" for line in settled_lines(spec))
        return Change("update", {"text": present}, {"text": wanted}, "the member has started")

    def _has_its_disk(self, point: str, host: Host) -> bool:
        """Tell whether the disk of the data is mounted, or has no data because it is blank."""
        return point in _block_device.mounts(host) or bool(host.cached(_block_device.BLANK + point, bool))

    def _start(self, spec: Spec, path: str, host: Host) -> t.List[str]:
        try:
            given = json.loads(host.secret(INPUT).decode())
        except Pending:
            raise Pending("membership:etcd") from None
        own = f"{spec['member']}={spec['peer_url']}"
        if given.get("state") not in ("new", "existing") or own not in str(given.get("cluster")).split(","):
            raise ResourceError(
                f"the membership that was sent does not have {own}",
                "Let playbooks/etcd.yml or member_add.yml start this member.",
            )
        known = host.note(NOTE + path)
        if given["state"] == "new" and known and read_text(host, path) is not None:
            raise ResourceError(
                f"this host was member {known['member']} of cluster {known['cluster']}, and has lost its "
                "data: it does not start a new store, which would have none of them",
                "If another member has data still, rebuild this one (playbooks/member_replace.yml); if "
                "none has, restore etcd from a backup, or reset the site to begin with nothing.",
            )
        return initial_lines(given["cluster"], given["state"])

    def _insist_on_own(self, spec: Spec, path: str, data: State, host: Host) -> None:
        known = host.note(NOTE + path)
        if known and data and known != data:
            raise ResourceError(
                f"{spec['data_dir']} holds the data of member {data['member']} of cluster {data['cluster']}; "
                f"this host is member {known['member']} of cluster {known['cluster']}",
                "Mount the disk that belongs here, or rebuild it with playbooks/member_replace.yml.",
            )


KIND = EtcdMemberKind()
