# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Secrets that must be there before anything is touched: today the key of the PKI store."""

from __future__ import annotations

import os
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft


def check_pki_key(draft: Draft) -> None:
    """The PKI store needs its key, from a file that only its owner reads, or from the environment.

    A store that exists must have been made with this key.
    """
    # Imported here because it brings `cryptography` with it, which a template's author does not need.
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import sealing
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.errors import PkiError
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.folder import Folder
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.keys import load_key

    key_file, store = draft.site_value("site_pki_key_file"), draft.site_value("site_pki_store")
    if not key_file and not store:
        return
    try:
        key = load_key(key_file or None, draft.environment)
        folder = Folder(Path(store or "/nonexistent").expanduser(), lambda: key)
        wanted = folder.header()["key_id"] if store and folder.exists() else sealing.key_id(key)
        given = sealing.key_id(key)
        if wanted != given:
            raise PkiError(
                f"The PKI store {folder.path} was made with another key ({wanted}, not {given}).",
                "Give the key that it was made with.",
            )
    except PkiError as error:
        draft.problems.add(
            draft.site_place("site_pki_key_file" if key_file else "site_pki_store"),
            "site_pki_key_file",
            _clause(error.message),
            _clause(error.remedy) or "name a file that only its owner can read",
        )


def _clause(sentence: str) -> str:
    """Turn a sentence into a clause of a longer one."""
    return sentence[:1].lower() + sentence[1:].rstrip(".")


def check_pki_store(draft: Draft) -> None:
    """The store is a folder, or does not exist yet; then what is above it is none but folders."""
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.folder import Folder

    store = draft.site_value("site_pki_store")
    if not isinstance(store, str) or not store:
        return
    folder = Path(store).expanduser()
    # The one that is there decides whether the store can be made in it.
    there = next((path for path in (folder, *folder.parents) if os.path.lexists(path)), None)
    message, remedy = "", "write a folder of its own, which need not be there yet"
    if there is not None and not there.is_dir():
        message, remedy = f"{there} is no folder", "write a folder"
    elif there == folder and not Folder(folder, bytes).exists():
        try:
            strangers = Folder(folder, bytes).strangers()
        except OSError:
            strangers = []  # It cannot be read, which is said when it is used.
        if strangers:
            message = f"{folder} is not empty and no PKI store: it has {', '.join(strangers[:3])}"
        elif folder.stat().st_mode & 0o022:
            message = f"others can write to {folder}"
            remedy = f"run chmod go-w {folder}, or write another folder"
    if message:
        draft.problems.add(draft.site_place("site_pki_store"), "site_pki_store", message, remedy)


CHECKS = (check_pki_key, check_pki_store)
