# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The store's folder on disk: its header, public files in clear and sealed secrets.

store.json                   schema version, site uid, id of the key (not the key); see header.py
store.json.newest            a copy of it
authorities/NAME.crt         etcd, kubernetes, front-proxy
public/service-account.pub
secrets/NAME.sealed          keys, see sealing.py; secrets-2 and so on after the store's key was changed
former/                      what was put aside, see former.py
recovery.bundle              all of it as one sealed text, see backup_keys.py
lock
"""

from __future__ import annotations

import contextlib
import re
import typing as t
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.files import write_file
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import former, header, sealing
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.errors import PkiError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.files import locked

BUNDLE = "recovery.bundle"
PARTS = ("authorities", "public", "secrets")


class Folder:
    """Reads and writes the files of one store.

    Args:
        path: the folder.
        load_key: returns the sealing key; called once, when a secret is first needed.
    """

    def __init__(self, path: Path, load_key: t.Callable[[], bytes]) -> None:
        self.path = path
        self._load_key = load_key
        self._key: bytes | None = None

    def exists(self) -> bool:
        """Tell whether a store was made in this folder."""
        return (self.path / header.FILE).exists()

    @contextlib.contextmanager
    def writing(self) -> t.Iterator[bool]:
        """Hold the store's lock with the header in place and the key proven to be the store's.

        Yields:
            True when the header was made just now.

        Raises:
            PkiError: wrong key, foreign or unprotected folder. Nothing was written then.
        """
        key = self._sealing_key()
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.path.stat().st_mode & 0o022:
            raise PkiError(f"Others can write to the PKI store {self.path}.", f"Run: chmod go-w {self.path}")
        with locked(self.path):
            made = not self.exists()
            if made:
                self._make_header(key)
            wanted = self.header()["key_id"]
            if wanted != sealing.key_id(key):
                raise PkiError(
                    f"The store {self.path} was made with key {wanted}; "
                    f"the key given is {sealing.key_id(key)}.",
                    "Give the key that the store was made with (site_pki_key_file or IRONSPAN_PKI_KEY).",
                )
            header.follow(self.path)
            self._put_others_aside()
            yield made

    def strangers(self) -> list[str]:
        """Return what is in the folder and of no store, so that none can be made there."""
        return sorted(
            entry.name
            for entry in self.path.iterdir()
            if entry.name != "lock" and not (entry.name in PARTS and not any(entry.iterdir()))
        )

    def _make_header(self, key: bytes) -> None:
        strangers = self.strangers()
        if strangers:
            remedy = "Name another folder in site_pki_store, or restore store.json from a backup."
            if header.newest_of(self.path):
                remedy = f"If it was one: cp {self.path / header.COPY} {self.path / header.FILE}"
            raise PkiError(
                f"{self.path} is not a PKI store, yet it is not empty: it has {', '.join(strangers[:5])}.",
                remedy,
            )
        for name in PARTS:
            (self.path / name).mkdir(mode=0o700, exist_ok=True)
        header.write(
            self.path,
            {
                "schema": header.SCHEMA_VERSIONS[0],
                "key_id": sealing.key_id(key),
                "site_uid": header.uid(),
                header.PEERS_NAMED: True,
            },
        )

    def renew_site_uid(self) -> None:
        """Give the site another random identity; keys and authorities stay."""
        with self.writing():
            self.change_header({"site_uid": header.uid()})

    def change_generations(self, name: str, state: dict[str, t.Any]) -> None:
        """Write the generations of one authority into store.json, while the folder is locked."""
        known = {**self.header().get("generations", {}), name: state}
        self.change_header({"schema": header.SCHEMA_VERSIONS[1], "generations": known})

    def change_header(self, fields: t.Mapping[str, t.Any]) -> None:
        """Write fields into store.json, while the folder is locked."""
        former_one = self.header()
        schema = max(former_one["schema"], fields.get("schema", 0))
        header.write(self.path, {**former_one, **fields, "schema": schema})

    def put_aside(self, *names: str) -> None:
        """Put files aside that nothing needs any more; ``names`` are relative to the folder."""
        paths = [path for name in names if (path := self.path / name).exists()]
        if paths:
            known = self.header().get(former.FIELD, [])
            self.change_header({former.FIELD: [*known, *former.digests(paths)]})
        for path in paths:
            former.put_aside(self.path, path)

    def forget(self) -> tuple[list[str], list[str]]:
        """Delete what was put aside, while the folder is locked and the store proven; see former.py."""
        found = former.forget(self.path, self.header().get(former.FIELD, []), self._has)
        self.change_header({former.FIELD: []})
        return found

    def header(self) -> dict[str, t.Any]:
        """Return the content of store.json, checked."""
        return header.read(self.path)

    def public(self, name: str) -> bytes:
        """Return a file's content; ``name`` is relative to the folder."""
        path = self.path / name
        try:
            return path.read_bytes()
        except FileNotFoundError as error:
            raise PkiError(
                f"The PKI store {self.path} has no {name}.",
                "Run playbooks/site.yml (it makes the store), or restore the folder from a backup.",
            ) from error
        except OSError as error:
            raise PkiError(f"{path} cannot be read: {error.strerror}.") from error

    def has(self, name: str) -> bool:
        """Tell whether a file is there; ``name`` is relative to the folder."""
        return (self.path / name).exists()

    def publish(self, name: str, content: bytes) -> None:
        """Write a public file."""
        write_file(self.path / name, content, 0o644)

    def seal(self, name: str, secret: bytes) -> None:
        """Encrypt a secret into its file."""
        write_file(self.path / self.secret_file(name), self.sealed(name, secret), 0o600)

    def sealed(self, name: str, secret: bytes) -> bytes:
        """Return a secret, encrypted with the store's key."""
        return sealing.seal(self._sealing_key(), name, secret)

    def opened(self, name: str, sealed: bytes) -> bytes:
        """Return what ``sealed`` encrypted."""
        return sealing.unseal(self._sealing_key(), name, sealed)

    def unseal(self, name: str) -> bytes:
        """Return a decrypted secret."""
        return sealing.unseal(self._sealing_key(), name, self.public(self.secret_file(name)))

    def kept(self, name: str) -> bytes:
        """Return a decrypted secret that the store was given once.

        Raises:
            PkiError: the store has lost it, or it is damaged.
        """
        if not self.has(self.secret_file(name)):
            raise PkiError(f"The store {self.path} has lost {name}.", header.FROM_COPIES)
        return self.unseal(name)

    def secret_file(self, name: str) -> str:
        """Return the file of a secret, relative to the folder."""
        return f"{self._secrets()}/{name}.sealed"

    def change_key(self, key: bytes) -> None:
        """Encrypt every secret with another key: into a folder beside, which store.json then names.

        A kill leaves the store with the old key or with the new one. The former folder is put aside when the
        new one was read back, and so is what a kill has left.
        """
        with self.writing():
            now, before = self.header(), self.path / self._secrets()
            folder = self._new_folder()
            sealed = sorted(before.glob("*.sealed"))
            for path in sealed:
                name = path.name.removesuffix(".sealed")
                write_file(folder / path.name, sealing.seal(key, name, self.unseal(name)), 0o600)
            for path in sealed:
                name = path.name.removesuffix(".sealed")
                if sealing.unseal(key, name, (folder / path.name).read_bytes()) != self.unseal(name):
                    raise PkiError(
                        f"{folder / path.name} does not read as it was written.", "Look at the disk."
                    )
            self.change_header(
                {
                    "schema": max(now["schema"], header.SCHEMA_VERSIONS[1]),
                    "key_id": sealing.key_id(key),
                    "secrets": folder.name,
                    former.FIELD: [*now.get(former.FIELD, []), *former.digests(sealed)],
                }
            )
            self._key = key
            self._put_others_aside()

    def _new_folder(self) -> Path:
        former_ones = (self.path / former.FOLDER).glob("secrets*")
        used = [path.name for path in (*self.path.glob("secrets*"), *former_ones)]
        numbers = [int(match[1]) for name in used if (match := re.match(r"secrets-([0-9]+)", name))]
        folder = self.path / f"secrets-{max([1, *numbers]) + 1}"
        folder.mkdir(mode=0o700)
        return folder

    def _secrets(self) -> str:
        return header.secrets_of(self.header())

    def _put_others_aside(self) -> None:
        """Put folders aside that store.json does not name, when what it names opens and misses nothing."""
        here = self._secrets()
        others = [path for path in self.path.glob("secrets*") if path.is_dir() and path.name != here]
        if not others:
            return
        named = {path.name for path in (self.path / here).glob("*.sealed")}
        try:
            for file in named:
                self.unseal(file.removesuffix(".sealed"))
        except PkiError:
            return
        for folder in others:
            if {path.name for path in folder.glob("*.sealed")} <= named:
                former.put_aside(self.path, folder)

    def _has(self, name: str, sealed: bytes) -> bool:
        try:
            return sealing.unseal(self._sealing_key(), name, sealed) == self.unseal(name)
        except PkiError:
            return False

    def _sealing_key(self) -> bytes:
        if self._key is None:
            self._key = self._load_key()
        return self._key


def unread(path: Path) -> PkiError:
    """Return the error of a file that was written and reads otherwise."""
    return PkiError(f"{path} does not read as it was written.", "Look at the disk; nothing was replaced.")
