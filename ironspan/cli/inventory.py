# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What commands read of an inventory: its site, and the PKI store that it names."""

from __future__ import annotations

import argparse
import collections.abc
import contextlib
import importlib
import os
import pathlib
import sys
import typing as t

from ironspan.cli.outcome import CommandError, Exit, ending
from ironspan.cli.playbook import inventories, project_folder

COLLECTION = "ansible_collections.ironspan.hybrid"


def add_option(
    parser: argparse.ArgumentParser, words: str = "inventory file or folder", default: t.Any = ()
) -> None:
    """Give a command the option ``-i``, as ``arguments.inventory``.

    Args:
        parser: of the command.
        words: what it says of the option.
        default: ``argparse.SUPPRESS`` keeps what was said before the name of a command below this one.
    """
    parser.add_argument(
        "-i",
        "--inventory",
        action="append",
        default=default or [],
        metavar="INVENTORY",
        help=f"{words} (may repeat)",
    )


@contextlib.contextmanager
def opened_store(given: list[str]) -> collections.abc.Iterator[t.Any]:
    """Yield the PKI store of an inventory's site, and turn its errors into the command's.

    Raises:
        CommandError: the inventory has problems, there is no store, or it cannot be used (exit 2).
    """
    site = read_site(given)
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import PkiError, open_store

    with ending(Exit.BAD_INPUT, PkiError):
        store = open_store(site.pki_store, site.pki_key_file or None)
        if not store.exists():
            raise CommandError(f"there is no PKI store {site.pki_store}", code=Exit.BAD_INPUT)
        yield store


def read_site(given: list[str]) -> t.Any:
    """Return the site of an inventory, checked; those given on the command line, or the project's own.

    Raises:
        CommandError: the inventory has problems (exit 2).
    """
    return _read(given, lambda loader: loader.load_site)


def read_draft(given: list[str]) -> t.Any:
    """Return the values of an inventory with their places, whether they make a site yet or not.

    Raises:
        CommandError: it cannot be read (exit 2).
    """
    return _read(given, lambda loader: loader.load_draft)


def _read(given: list[str], how: collections.abc.Callable[[t.Any], t.Any]) -> t.Any:
    """Return what a function of ``assembly.loader`` makes of an inventory."""
    project = _prepared()
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.assembly import loader
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import said_of

    found, problems = how(loader)(inventories(given, project))
    if found is None:
        raise CommandError(said_of(problems), code=Exit.BAD_INPUT)
    return found


def _prepared() -> pathlib.Path:
    """Return the project's folder, when Ansible is ready to read an inventory."""
    project = project_folder()
    # Ansible reads its settings when it is imported.
    os.environ.setdefault("ANSIBLE_CONFIG", str(project / "ansible.cfg"))
    from ansible.plugins.loader import init_plugin_loader

    init_plugin_loader([str(project / "collections")])
    if not hasattr(sys.modules.get(COLLECTION), "_collection_meta"):
        # Imported by this command before Ansible's loader was there, which reads metadata at the import.
        former = sys.modules.pop(COLLECTION, None)
        found = importlib.import_module(COLLECTION)
        if former is not None and hasattr(former, "plugins"):
            vars(found)["plugins"] = former.plugins  # what was imported stays in its place
    return project
