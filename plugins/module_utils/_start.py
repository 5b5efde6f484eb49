# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Imports this collection's host side from texts in memory, and nothing of it from the host's file system.

It is sent as a text and executed before there is anything to import from. What was checked is therefore what
runs: no file is opened a second time.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
import typing as t

PACKAGE = "ansible_collections.ironspan.hybrid.plugins.module_utils"


class Importer:
    """Finds and loads modules whose texts it has.

    Args:
        texts: file below ``plugins/module_utils`` -> its text. More may be added later.
    """

    def __init__(self, texts: t.Dict[str, str]) -> None:
        self.texts = texts

    def find_spec(
        self, name: str, path: t.Any = None, target: t.Any = None
    ) -> t.Optional[importlib.machinery.ModuleSpec]:
        """Return how a module of the collection is loaded, None for any other."""
        file = ""
        if name.startswith(PACKAGE + "."):
            base = name[len(PACKAGE) + 1 :].replace(".", "/")
            file = next((each for each in (f"{base}/__init__.py", f"{base}.py") if each in self.texts), "")
            if not file and not any(each.startswith(base + "/") for each in self.texts):
                return None
        elif not f"{PACKAGE}.".startswith(name + "."):
            return None
        package = not file or file.endswith("/__init__.py")
        loader = t.cast(t.Any, self)
        return importlib.machinery.ModuleSpec(name, loader, origin=file, is_package=package)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        """Let Python make the module."""

    def exec_module(self, module: t.Any) -> None:
        """Run a module's text; a package without one is empty."""
        file = module.__spec__.origin
        if file:
            exec(compile(self.texts[file], f"ironspan/{file}", "exec", dont_inherit=True), module.__dict__)


def start(texts: t.Dict[str, str], name: str) -> t.Any:
    """Import a module of this collection from texts, before anything else of that name on the host.

    Args:
        texts: see ``Importer``.
        name: of the module, below ``plugins/module_utils``.
    """
    sys.meta_path.insert(0, t.cast(t.Any, Importer(texts)))
    return importlib.import_module(f"{PACKAGE}.{name}")
