# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The store's folder on disk: its header, public files in clear and sealed secrets.

store.json                   schema version, site uid, id of the key (not the key)
authorities/NAME.crt         etcd, kubernetes, front-proxy
public/service-account.pub
secrets/NAME.sealed          keys, see sealing.py; secrets-2 and so on after the store's key was changed
recovery.bundle              all of it as one sealed text, see backup_keys.py
lock
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import shutil
import typing as t
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.files import write_file
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import sealing
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.errors import PkiError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.files import locked

BUNDLE = "recovery.bundle"
SCHEMA_VERSIONS = (1, 2, 3)
"""Format 2 has the generations of authorities, format 3 how secrets are encrypted; a store gets them when the
first authority is changed and when encryption begins."""


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
        return (self.path / "store.json").exists()

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
            for name in ("authorities", "public", self._secrets()):
                (self.path / name).mkdir(mode=0o700, exist_ok=True)
            self._remove_stale()
            yield made

    def _make_header(self, key: bytes) -> None:
        strangers = sorted(entry.name for entry in self.path.iterdir() if entry.name != "lock")
        if strangers:
            raise PkiError(
                f"{self.path} is not a PKI store, yet it is not empty: it has {', '.join(strangers[:5])}.",
                "Name another folder in site_pki_store, or restore store.json from a backup.",
            )
        self._write_header({"schema": SCHEMA_VERSIONS[0], "key_id": sealing.key_id(key), "site_uid": _uid()})

    def _write_header(self, header: dict[str, t.Any]) -> None:
        write_file(self.path / "store.json", json.dumps(header, indent=2).encode() + b"\n", 0o644)

    def renew_site_uid(self) -> None:
        """Give the site another random identity; keys and authorities stay."""
        with self.writing():
            self._write_header({**self.header(), "site_uid": _uid()})

    def change_generations(self, name: str, state: dict[str, t.Any]) -> None:
        """Write the generations of one authority into store.json, while the folder is locked."""
        known = {**self.header().get("generations", {}), name: state}
        self.change_header({"schema": SCHEMA_VERSIONS[1], "generations": known})

    def change_header(self, fields: t.Mapping[str, t.Any]) -> None:
        """Write fields into store.json, while the folder is locked."""
        header = self.header()
        schema = max(header["schema"], fields.get("schema", 0))
        self._write_header({**header, **fields, "schema": schema})

    def remove(self, name: str) -> None:
        """Delete a file that nothing needs any more; ``name`` is relative to the folder."""
        (self.path / name).unlink(missing_ok=True)

    def header(self) -> dict[str, t.Any]:
        """Return the content of store.json, checked."""
        content = self.public("store.json")
        try:
            header = json.loads(content)
            schema = header["schema"]
            if schema not in SCHEMA_VERSIONS:
                raise PkiError(
                    f"The store {self.path} has format {schema}; this version reads {SCHEMA_VERSIONS[-1]}.",
                    "Use the version of ironspan that wrote it.",
                )
            folder = re.fullmatch(r"secrets(-[0-9]+)?", header.get("secrets", "secrets"))
            uid = re.fullmatch(r"[0-9a-f]{16}", header["site_uid"])
            if not (folder and uid and isinstance(header["key_id"], str)):
                raise ValueError
        except (ValueError, KeyError, TypeError) as error:
            raise PkiError(f"{self.path}/store.json is damaged.", "Restore it from a backup.") from error
        return t.cast("dict[str, t.Any]", header)

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

    def unseal(self, name: str) -> bytes:
        """Return a decrypted secret."""
        return sealing.unseal(self._sealing_key(), name, self.public(self.secret_file(name)))

    def secret_file(self, name: str) -> str:
        """Return the file of a secret, relative to the folder."""
        return f"{self._secrets()}/{name}.sealed"

    def change_key(self, key: bytes) -> None:
        """Encrypt every secret with another key: into a folder beside, which store.json then names.

        A kill leaves the store with the old key or with the new one; the folder of the other one goes when
        something is written the next time.
        """
        with self.writing():
            header, former = self.header(), self._secrets()
            number = int(former.partition("-")[2] or 1) + 1
            folder = self.path / f"secrets-{number}"
            folder.mkdir(mode=0o700)
            for path in sorted((self.path / former).glob("*.sealed")):
                name = path.name.removesuffix(".sealed")
                sealed = sealing.seal(key, name, self.unseal(name))
                write_file(folder / path.name, sealed, 0o600)
            schema = max(header["schema"], SCHEMA_VERSIONS[1])
            changed = {"schema": schema, "key_id": sealing.key_id(key), "secrets": folder.name}
            self._write_header({**header, **changed})
            self._key = key
            self._remove_stale()
            self.remove(BUNDLE)

    def _secrets(self) -> str:
        return str(self.header().get("secrets", "secrets"))

    def _remove_stale(self) -> None:
        for folder in self.path.glob("secrets*"):
            if folder.name != self._secrets():
                shutil.rmtree(folder)

    def _sealing_key(self) -> bytes:
        if self._key is None:
            self._key = self._load_key()
        return self._key


def _uid() -> str:
    return secrets.token_hex(8)
