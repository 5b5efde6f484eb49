# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The small JSON objects of a store: epochs, the manifests of snapshots, verdicts of drills."""

from __future__ import annotations

import base64
import binascii
import collections.abc
import dataclasses
import hashlib
import json
import types
import typing as t

from ironspan.backup.errors import ChainError, Unsigned
from ironspan.backup.proof import DRILL, SCHEMA, UNSIGNED_SCHEMA, WRITER, Proof, canonical

LARGEST_BYTES = 4 << 20
"""A manifest has some kilobytes; more of an object is not read."""


@dataclasses.dataclass(frozen=True, slots=True)
class Restored:
    """Where the data of an epoch came from."""

    snapshot: str
    """Identifier of the snapshot, or what else was restored from."""
    revision: int
    """The last revision that was restored."""
    bump_revision: int
    """By how much revisions were raised after it."""
    from_epoch: int


@dataclasses.dataclass(frozen=True, slots=True)
class Epoch:
    """A span of time in which the store belongs to one etcd cluster; a restore begins the next one."""

    epoch: int
    cluster_id: str
    """In hexadecimal, as etcd's logs write it."""
    created: int
    """Seconds since 1970."""
    restored: Restored | None = None
    schema: int = SCHEMA


@dataclasses.dataclass(frozen=True, slots=True)
class Manifest:
    """What commits a snapshot and says what a restore of it has to show."""

    site: str
    epoch: int
    cluster_id: str
    revision: int
    """The one that the data is at; the snapshot's name has the one at which it was asked for."""
    compact_revision: int
    hashkv: int
    """etcd's hash of all keys at ``revision``, with ``compact_revision``; both 0 when etcd compacted
    ``revision`` before it could be asked, then without ``object_counts`` too."""
    etcd_version: str
    storage_version: str
    created: int
    """Seconds since 1970, before the snapshot's first byte."""
    size: int
    """Bytes of the plain file."""
    sha256: str
    """Of the plain file as etcd delivered it, its trailer included."""
    parts: int
    """Encrypted parts of the data object (crypto.PART_BYTES)."""
    key_version: str
    wrapped_key: bytes
    object_counts: dict[str, int]
    """Keys at ``revision`` by the first two parts of their names, such as ``/registry/pods``."""
    schema: int = SCHEMA


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """What a drill found about a snapshot and the log behind it."""

    epoch: int
    snapshot: str
    verified: bool
    revision: int
    """The last revision that the drill replayed."""
    created: int
    """When the drill ended, seconds since 1970."""
    seconds: float
    host: str
    findings: tuple[str, ...] = ()
    """What was not as it should be; empty when verified."""
    objects: int = 0
    schema: int = SCHEMA


_SIGNED_BY: dict[type[Epoch | Manifest | Verdict], str] = {Epoch: WRITER, Manifest: WRITER, Verdict: DRILL}


def dump(value: Epoch | Manifest | Verdict, name: str, proof: Proof) -> bytes:
    """Return the bytes of a small object: sorted JSON with the SHA-256 of all the rest, signed.

    Args:
        value: the object.
        name: under which it will be in the store; under another one it counts for nothing.
        proof: signs it.

    Raises:
        ProgramError: this host may not sign such an object.
    """
    fields = dataclasses.asdict(value)
    for key, content in fields.items():
        if isinstance(content, bytes):
            fields[key] = base64.b64encode(content).decode()
    part = _SIGNED_BY[type(value)]
    fields["signer"] = proof.signer(part)
    signature = proof.sign(part, _kind(type(value)), name, canonical(fields))
    fields["signature"] = base64.b64encode(signature).decode()
    fields["digest"] = _digest(fields)
    return (json.dumps(fields, sort_keys=True, indent=1) + "\n").encode()


def load[Kind: (Epoch, Manifest, Verdict)](kind: type[Kind], data: bytes, name: str, proof: Proof) -> Kind:
    """Return the object that these bytes are, if it is one that the site wrote under this name.

    Args:
        kind: Epoch, Manifest or Verdict.
        data: what ``dump`` made.
        name: of the object in the store.
        proof: verifies it.

    Raises:
        Unsigned: it is of the time before objects were signed.
        ChainError: the bytes are not those that were written, nobody of the site signed them, or they are of
            a newer schema.
    """
    try:
        fields = json.loads(data)
        digest = fields.pop("digest")
        fits = digest == _digest(fields)
        signature = fields.pop("signature", None)
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise _altered(name, "it is not the JSON of such an object") from error
    if not fits:
        raise _altered(name, "its digest does not fit")
    schema = fields.get("schema")
    if schema != proof.schema:
        raise _other_schema(name, schema, proof)
    content = canonical(fields)
    signer = fields.pop("signer", None)
    if proof.schema != UNSIGNED_SCHEMA and not _proven(proof, kind, name, signer, signature, content):
        raise ChainError(
            f"{name} is not signed by this site.",
            "Somebody else wrote it, or copied it from another name: find out who has an identity at the "
            "store that may write (docs/backup.md#what-does-not-verify).",
            altered=name,
        )
    try:
        return _build(kind, fields)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise _altered(name, str(error)) from error


def _kind(kind: type[Epoch | Manifest | Verdict]) -> str:
    return kind.__name__.lower()


def _proven(
    proof: Proof,
    kind: type[Epoch | Manifest | Verdict],
    name: str,
    signer: object,
    signature: object,
    content: bytes,
) -> bool:
    if not isinstance(signer, str) or not isinstance(signature, str):
        return False
    try:
        raw = base64.b64decode(signature, validate=True)
    except (binascii.Error, ValueError):
        return False
    if base64.b64encode(raw).decode() != signature:
        return False
    return proof.verifies(_SIGNED_BY[kind], signer, raw, _kind(kind), name, content)


def _other_schema(name: str, schema: object, proof: Proof) -> ChainError:
    if schema == UNSIGNED_SCHEMA:
        return Unsigned(
            f"{name} is not signed: it was written before backups were, or by somebody else.",
            "What it belongs to is restored only if it is asked for, as unsigned:POINT.",
            altered=name,
        )
    return ChainError(
        f"{name} has the schema {schema!r}; this version reads {proof.schema} here.",
        "Use the version of ironspan that wrote it, or a newer one.",
        altered=name,
    )


def _altered(name: str, what: str) -> ChainError:
    return ChainError(
        f"{name} is not what was written: {what}.",
        "Use another snapshot, or the copy in another store.",
        altered=name,
    )


def _digest(fields: collections.abc.Mapping[str, t.Any]) -> str:
    return hashlib.sha256(canonical(fields)).hexdigest()


def _build[Kind](kind: type[Kind], fields: dict[str, t.Any]) -> Kind:
    hints = t.get_type_hints(kind)
    if fields.keys() != hints.keys():
        raise ValueError(f"fields {sorted(fields.keys() ^ hints.keys())} are unknown or missing")
    return kind(**{key: _field(key, content, hints[key]) for key, content in fields.items()})


def _field(key: str, content: t.Any, hint: t.Any) -> t.Any:
    if hint is bytes:
        try:
            return base64.b64decode(content, validate=True)
        except binascii.Error as error:
            raise ValueError(f"{key} is not base64") from error
    if t.get_origin(hint) is types.UnionType:
        return None if content is None else _build(Restored, content)
    if t.get_origin(hint) is tuple:
        return tuple(content)
    plain = t.get_origin(hint) or hint
    if plain is float and type(content) is int:
        return float(content)
    if type(content) is not plain:
        raise ValueError(f"{key} is a {type(content).__name__}, not a {plain.__name__}")
    return content
