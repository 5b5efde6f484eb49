# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Where the store of the cluster is backed up to, by which identity, with which keys."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft, HostDraft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.entry import Entry
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.formats import fault_of

STORES = "etcd_backup_stores"
KEYS = "etcd_backup_keys"
Fields = Mapping[str, str]
"""Fields that a kind needs, and an example of each."""
NEEDED: Mapping[str, Fields] = {
    "azure": {
        "account_url": "https://NAME.blob.core.windows.net",
        "container": "NAME",
        "credential": "{kind: managed_identity}",
    },
    "file": {"path": "/FOLDER"},
}
"""Kind of a store -> what it needs."""
NEEDED_BY_KEYS: Mapping[str, Fields] = {
    "file": {},
    "key_vault": {
        "vault_url": "https://NAME.vault.azure.net",
        "key": "NAME",
        "credential": "{kind: managed_identity}",
    },
}
"""Kind of keys -> what it needs."""
OF_OTHERS: Mapping[str, tuple[str, ...]] = {
    "azure": ("path",),
    "file": ("account_url", "container", "credential", "ca"),
}
OF_OTHER_KEYS: Mapping[str, tuple[str, ...]] = {"file": ("vault_url", "key", "credential", "ca")}
OTHERS: Mapping[str, tuple[str, ...]] = {
    "account_url": (".vault.", ".file.core.", ".dfs.core.", ".queue.core.", ".table.core."),
    "vault_url": (".blob.core.", ".file.core.", ".dfs.core."),
}
"""Field -> what other services have in their names."""
HELPERS = ("etcd_drill", "etcd_collector")
"""Groups of hosts that work on the backups and are no members, or need not be."""
_PLACE = ("account_url", "container", "path", "prefix")
_PREFIX = re.compile(r"((?!\.{1,2}/)[A-Za-z0-9._-]+/)*")
_NAMES = {"blob.core": "azure_storage_account", "vault": "azure_vault"}
"""What follows a name in the addresses of all of Azure's clouds -> grammar of the name."""
_NOT_LASTING = ("dev", "etc", "proc", "run", "sys", "tmp")
"""Folders of the root that are gone with a boot or after some days, or are no place for data."""
_SECRET = re.compile(r"AccountKey=|SharedAccessSignature=|[?&]sig=", re.IGNORECASE)


def check_stores(draft: Draft) -> None:
    """Every store has what its kind needs, no secrets, and a place of its own."""
    for host in _distinct(draft, STORES):
        seen: dict[tuple[str, ...], str] = {}
        for entry in _stores(draft, host):
            _check_kind(entry, NEEDED, OF_OTHERS)
            _check_azure(entry) if entry.text("kind") == "azure" else _check_folder(entry)
            if not _PREFIX.fullmatch(entry.text("prefix")):
                entry.problem("prefix", f"{entry.text('prefix')!r} is no prefix", "write nothing, or NAME/")
            place = tuple(entry.text(name).rstrip("/") for name in _PLACE)
            if place in seen:
                entry.problem(
                    "kind", f"is the same place as {seen[place]}", "give every store a place of its own"
                )
            seen[place] = entry.path
            _check_apart(entry, seen)


def _check_apart(entry: Entry, seen: Mapping[tuple[str, ...], str]) -> None:
    """A copy inside of another store would be listed, and lost, with it."""
    if entry.text("kind") != "file" or not entry.text("path"):
        return
    own = _folder(entry.text("path"), entry.text("prefix"))
    for (*_, path, prefix), other in seen.items():
        folder = _folder(path, prefix)
        if path and other != entry.path and (own in (folder, *folder.parents) or folder in own.parents):
            message = f"{own} and {folder}, of {other}, are one inside of the other"
            entry.problem("path", message, "give every store a folder of its own")


def _folder(path: str, prefix: str) -> PurePosixPath:
    return PurePosixPath(path) / prefix.strip("/")


def check_keys(draft: Draft) -> None:
    """Keys in a vault need its address, their name and an identity."""
    for host in _distinct(draft, KEYS):
        value, setting = host.values.get(KEYS), host.settings.get(KEYS)
        if not isinstance(value, Mapping) or not value:
            continue
        if not host.values.get(STORES):
            remedy = f"write {STORES} too, or remove it"
            draft.problems.add(draft.place(host, KEYS), KEYS, f"does nothing without {STORES}", remedy)
            continue
        entry = Entry(draft, host, KEYS, value, setting.value if setting else None)
        _check_kind(entry, NEEDED_BY_KEYS, OF_OTHER_KEYS)
        if entry.text("kind") == "key_vault":
            check_url(entry, "vault_url", NEEDED_BY_KEYS["key_vault"]["vault_url"])
            check_credential(entry)


def check_members_agree(draft: Draft) -> None:
    """All members write to one place: an agent takes over from another without a gap."""
    members = draft.members("etcd")
    for variable in (STORES, KEYS):
        for host in members[1:]:
            if host.values.get(variable) != members[0].values.get(variable):
                draft.problems.add(
                    draft.place(host, variable),
                    variable,
                    f"is another one for {host.name} than for {members[0].name}",
                    "write it once, in group_vars/all.yml or group_vars/etcd.yml",
                )
                break


def check_helpers_agree(draft: Draft) -> None:
    """Hosts that prove backups or delete old ones work where the members write, by another identity or not.

    A helper without any store has nothing to do, which takes away what it did.
    """
    for host in draft.members("etcd_drill"):
        if "etcd" in host.groups:
            draft.problems.add(
                draft.member_place("etcd_drill", host.name),
                "groups.etcd_drill",
                f"host {host.name} is in etcd too, and a drill would take its disk and memory",
                "list a host in etcd_drill that is no member, or none: then the members do the drills",
            )
    members = draft.members("etcd")
    for host in (host for group in HELPERS for host in draft.members(group)):
        own = _places(host)
        if members and own and own != _places(members[0]):
            draft.problems.add(
                draft.place(host, STORES),
                STORES,
                f"are other places for {host.name} than for {members[0].name}",
                "write the same stores; only credential, ca and private may be others",
            )


def _places(host: HostDraft) -> list[tuple[object, ...]]:
    values = host.values.get(STORES)
    stores = [store for store in values if isinstance(store, Mapping)] if isinstance(values, list) else []
    return [tuple(store.get(name) or "" for name in ("kind", *_PLACE)) for store in stores]


def _distinct(draft: Draft, variable: str) -> Iterator[HostDraft]:
    """Yield hosts that read the variable, one for each place where it is written."""
    seen: set[str] = set()
    for host in (host for group in ("etcd", *HELPERS) for host in draft.members(group)):
        if variable in host.settings and str(draft.place(host, variable)) not in seen:
            seen.add(str(draft.place(host, variable)))
            yield host


def _stores(draft: Draft, host: HostDraft) -> Iterator[Entry]:
    values = host.values.get(STORES)
    written = host.settings[STORES].value
    for index, value in enumerate(values if isinstance(values, list) else ()):
        if isinstance(value, Mapping):
            item = written[index] if isinstance(written, list) else None
            yield Entry(draft, host, f"{STORES}[{index}]", value, item)


def _check_kind(entry: Entry, needed: Mapping[str, Fields], of_others: Mapping[str, tuple[str, ...]]) -> None:
    kind = entry.text("kind")
    for name, example in needed.get(kind, {}).items():
        if not entry.has(name):
            entry.problem(name, f"is missing, and {kind} needs it", f"write '{name}: {example}'")
    for name in of_others.get(kind, ()):
        if entry.value.get(name):
            entry.problem(name, f"means nothing for {kind}", "remove it")


def _check_azure(entry: Entry) -> None:
    check_url(entry, "account_url", NEEDED["azure"]["account_url"])
    check_credential(entry)


def check_url(entry: Entry, name: str, example: str) -> None:
    """The address of a service of Azure: https, and nothing secret in it.

    Args:
        entry: the dictionary.
        name: its field.
        example: what to write.
    """
    url = entry.text(name)
    if not url:
        return
    parts = urllib.parse.urlsplit(url)
    if _SECRET.search(url) or parts.username:
        entry.problem(
            name, "has a key or signature in it", f"write {example} and a credential: no keys are used"
        )
    elif parts.scheme != "https" or not parts.hostname or parts.query or parts.fragment:
        entry.problem(name, f"{url!r} is not of the form https://HOST", f"write {example}")
    elif (name == "vault_url" or ".blob." in parts.hostname) and parts.path.strip("/"):
        what = "key" if name == "vault_url" else "container"
        entry.problem(name, f"{url!r} has a path; the {what} has its own field", f"write {example}")
    elif any(text in parts.hostname for text in OTHERS[name]):
        entry.problem(name, f"{parts.hostname} is a name of another service", f"write {example}")
    elif fault := _fault_of_name(parts.hostname, urllib.parse.urlsplit(example).hostname or ""):
        entry.problem(name, f"{parts.hostname.partition('.')[0]!r} {fault[0]}", fault[1])


def _fault_of_name(host: str, like: str) -> tuple[str, str] | None:
    """Return what is wrong with the name of an account or vault in its address, by Azure's rules.

    Args:
        host: of the address; other clouds have other endings, and a proxy of the site's own has any name.
        like: that of the example, NAME.SERVICE and so on.
    """
    account, _, rest = host.partition(".")
    service = next((part for part in _NAMES if f"{part}." in like and rest.startswith(f"{part}.")), "")
    return fault_of(account, _NAMES[service]) if service else None


def check_credential(entry: Entry) -> None:
    """The identity of a host, in the field ``credential``."""
    credential = entry.inner("credential")
    if credential is None:
        return
    if credential.text("kind") == "arc" and credential.text("client_id"):
        message = "is of an identity that somebody made, and a machine of Arc has its own alone"
        credential.problem("client_id", message, "take it out")
    if credential.text("kind") in ("managed_identity", "arc"):
        for name in ("tenant_id", "token_file", "authority"):
            if credential.text(name):
                message = f"means nothing for {credential.text('kind')}, which a machine has without it"
                credential.problem(name, message, "take it out, or write 'kind: workload_identity'")
    check_token(credential)


def check_token(credential: Entry) -> None:
    """A projected token is of somebody."""
    if credential.text("kind") == "workload_identity":
        for name in ("client_id", "tenant_id", "token_file"):
            if not credential.has(name):
                credential.problem(name, "is missing, and workload_identity needs it", f"write '{name}: ...'")


def _check_folder(entry: Entry) -> None:
    path = PurePosixPath(entry.text("path"))
    is_lost = (
        (path.parts[1:2] and path.parts[1] in _NOT_LASTING)
        or path.is_relative_to("/var/run")
        or path.is_relative_to("/var/tmp")
    )
    if path.is_absolute() and (is_lost or len(path.parts) < 3 or path.is_relative_to("/var/lib/etcd")):
        entry.problem(
            "path",
            f"{path} is no place for backups",
            "write a folder of its own, not among etcd's data, such as /srv/etcd-backup",
        )


CHECKS = (check_stores, check_keys, check_members_agree, check_helpers_agree)
