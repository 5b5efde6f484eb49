# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The settings of the backup program, as the role etcd_backup writes them."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ironspan.azure.settings import ACCOUNT, service, vault
from ironspan.backup.proof import PARTS
from ironspan.program import settings
from ironspan.program.listen import Listen, listen
from ironspan.program.settings import Section

DEFAULT_PATH = Path("/etc/ironspan/etcd-backup.json")

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
_ENDPOINT = re.compile(r"https://(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+):[0-9]{1,5}")
_LOOPBACK = re.compile(r"http://(127\.[0-9.]+|localhost|\[::1\]):[0-9]{1,5}")
_ABSOLUTE = re.compile(r"/.*")
_PREFIX = re.compile(r"([A-Za-z0-9._-]+/)*")
_CONTAINER = re.compile(r"[a-z0-9](-?[a-z0-9]){2,62}")
_ANYTHING = re.compile(r".*")
_NOTHING = re.compile(r"")
_VERSION = re.compile(r"[1-9][0-9]{0,5}")
_PUBLIC = re.compile(r"[A-Za-z0-9+/]{43}=")
_GUARD = re.compile(r"stop|alarm")
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Etcd:
    """How the members of the cluster are reached."""

    endpoints: tuple[str, ...]
    local: str
    ca: str
    certificate: str
    key: str
    data_dir: str


@dataclass(frozen=True, slots=True)
class Spool:
    """Where the log waits on this host while the store cannot be written."""

    path: Path
    max_bytes: int


@dataclass(frozen=True, slots=True)
class Retention:
    """How many snapshots of each kind stay."""

    hourly: int
    daily: int
    weekly: int
    monthly: int


@dataclass(frozen=True, slots=True)
class Drill:
    """When a restore is tried, how old the last one may be, and what it may use."""

    after_snapshot: bool
    max_age_s: int
    memory_max: int
    cpu_quota_percent: int
    elsewhere: bool = False
    """A host that is no member does the drills, and the agents do none."""


@dataclass(frozen=True, slots=True)
class Care:
    """When a member is defragmented, and when its quota is worth a warning."""

    defragment_fragmentation_percent: int
    defragment_least_bytes: int
    quota_warn_percent: int


@dataclass(frozen=True, slots=True)
class Settings:
    """The whole file. ``stores`` and ``keys`` are what ``open_store`` and ``open_keys`` take."""

    site: str
    host: str
    etcd: Etcd
    stores: tuple[Mapping[str, t.Any], ...]
    keys: Mapping[str, t.Any]
    proof: Mapping[str, t.Any]
    """Whose signatures count, and where this host's own keys are: what ``open_proof`` takes."""
    spool: Spool
    flush_ms: int
    snapshot_every_s: int
    coalesce_node_leases: bool
    retention: Retention
    metrics: Listen
    drill: Drill
    care: Care
    guard: str
    """What follows when etcd serves a database older than its backup: ``stop`` closes it, ``alarm`` tells."""


def load(path: Path = DEFAULT_PATH) -> Settings:
    """Read and check the settings file.

    Args:
        path: the file, JSON.

    Raises:
        SettingsError: it cannot be read, or something in it is wrong; all problems at once.
    """
    return parse(settings.load(path, "etcd_backup"), path)


def parse(data: object, path: Path = DEFAULT_PATH) -> Settings:
    """Check the file's content; ``path`` is for messages. Raises SettingsError like ``load``."""
    return settings.checked(data, path, _read)


def _read(top: Section) -> Settings:
    return Settings(
        site=top.text("site", _NAME, "the site's name: lower-case letters, digits, hyphens"),
        host=top.text("host", _NAME, "this host's name in the inventory"),
        etcd=_etcd(top.section("etcd")),
        stores=_stores(top),
        keys=_keys(top.section("keys")),
        proof=_proof(top.section("proof")),
        spool=_spool(top.section("spool", default={})),
        flush_ms=top.number("flush_ms", 200, 20, 5000),
        snapshot_every_s=top.number("snapshot_every_s", 3600, 10, 7 * 86400),
        coalesce_node_leases=top.flag("coalesce_node_leases", True),
        retention=_retention(top.section("retention", default={})),
        metrics=listen(top.section("metrics", default={}), 2384),
        drill=_drill(top.section("drill", default={})),
        care=_care(top.section("care", default={})),
        guard=top.text("guard", _GUARD, "stop or alarm", default="stop"),
    )


def _etcd(section: Section) -> Etcd:
    address = "https://ADDRESS:2379"
    endpoints = section.texts("endpoints", _ENDPOINT, _LOOPBACK, write=address)
    local = section.text("local", _ENDPOINT, address, other=_LOOPBACK)
    secure = any(endpoint.startswith("https:") for endpoint in (*endpoints, local))
    pem = _ABSOLUTE if secure else _ANYTHING
    default = None if secure else ""
    found = Etcd(
        endpoints,
        local,
        ca=section.text("ca", pem, "the path of the authority's certificate", default),
        certificate=section.text("certificate", pem, "the path of a client certificate", default),
        key=section.text("key", pem, "the path of its private key", default),
        data_dir=section.text("data_dir", _ABSOLUTE, "the member's data directory"),
    )
    section.end()
    return found


def _stores(top: Section) -> tuple[Mapping[str, t.Any], ...]:
    return tuple(_store(section) for section in top.sections("stores", "at least one store"))


def _store(section: Section) -> Mapping[str, t.Any]:
    kind = section.choice("kind", ("azure", "file"))
    found: dict[str, t.Any] = {"kind": kind}
    found["prefix"] = section.text("prefix", _PREFIX, "nothing, or a folder that ends with /", default="")
    if kind == "file":
        found["path"] = section.text("path", _ABSOLUTE, "an absolute path")
    elif kind == "azure":
        found["account_url"] = section.text("account_url", ACCOUNT, "https://NAME.blob.core.windows.net")
        found["container"] = section.text("container", _CONTAINER, "the container's name")
        found |= service(section)
    if kind:
        section.end()
    return found


def _keys(section: Section) -> Mapping[str, t.Any]:
    kind = section.choice("kind", ("file", "key_vault"))
    found: dict[str, t.Any] = {"kind": kind}
    if kind == "file":
        found["folder"] = section.text("folder", _ABSOLUTE, "the folder with <version>.key files")
    elif kind == "key_vault":
        found |= vault(section)
    if kind:
        section.end()
    return found


def _proof(section: Section) -> Mapping[str, t.Any]:
    trusted, sign = section.section("trusted"), section.section("sign", default={})
    write = "VERSION: a public key, 32 bytes in base64"
    keys = {part: trusted.section(part).every(_VERSION, _PUBLIC, write) for part in PARTS}
    paths = {
        part: sign.text(part, _ABSOLUTE, "the path of a private key", default="", other=_NOTHING)
        for part in PARTS
    }
    for one in (trusted, sign, section):
        one.end()
    return {"trusted": keys, "sign": {part: path for part, path in paths.items() if path}}


def _spool(section: Section) -> Spool:
    path = section.text("path", _ABSOLUTE, "an absolute path", default="/var/lib/ironspan/etcd-backup/spool")
    spool = Spool(Path(path), section.number("max_bytes", 1 << 30, _MIB, 1 << 42))
    section.end()
    return spool


def _retention(section: Section) -> Retention:
    counts = [section.number(*item) for item in (("hourly", 24, 1, 10_000), ("daily", 7, 0, 10_000))]
    counts += [section.number(*item) for item in (("weekly", 4, 0, 10_000), ("monthly", 6, 0, 10_000))]
    section.end()
    return Retention(*counts)


def _drill(section: Section) -> Drill:
    drill = Drill(
        section.flag("after_snapshot", True),
        section.number("max_age_s", 90_000, 60, 400 * 86400),
        section.number("memory_max", 2 << 30, 128 * _MIB, 1 << 42),
        section.number("cpu_quota_percent", 50, 1, 10_000),
        section.flag("elsewhere", False),
    )
    section.end()
    return drill


def _care(section: Section) -> Care:
    care = Care(
        section.number("defragment_fragmentation_percent", 45, 1, 99),
        section.number("defragment_least_bytes", 100 * _MIB, 0, 1 << 42),
        section.number("quota_warn_percent", 80, 1, 99),
    )
    section.end()
    return care
