# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The lab's and the example's site, rendered with a stand-in for the PKI store and an index of the mirror."""

from __future__ import annotations

import base64
import functools
import json
import typing as t
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import yaml
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine import removal
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.document import read_document
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.journal import History
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.assembly.loader import load_site, require_site
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.documents import Renderer
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.layers import all_layers
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Site

from tests.support.public_side import PublicSide

ROOT = Path(__file__).resolve().parents[3]
ROLES = all_layers().order
INVENTORIES = ("lab", "example")

Document = dict[str, t.Any]
Resource = dict[str, t.Any]


class Rendered:
    """One site and its documents."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.renderer = Renderer(site, PublicSide())

    def document(self, host: str, template: str = "desired.yml.j2") -> Document:
        """Return a host's document."""
        return self.renderer.document(self.site.hosts[host], template=template)

    def resources(self, host: str, template: str = "desired.yml.j2") -> dict[str, Resource]:
        """Return a host's resources by id."""
        return {resource["id"]: resource for resource in self.document(host, template)["resources"]}

    def after(self, host: str, former: Rendered, template: str = "desired.yml.j2") -> dict[str, Resource]:
        """Return a document's resources with the removal that the engine adds where another was applied."""
        owned = {}
        for resource in read_document(former.document(host)).resources:
            members = dict.fromkeys(resource.spec.get("members") or ())
            if mine := removal.owned_by(resource.spec, {"members": members}):
                owned[resource.id] = mine
        raw = self.document(host, template)
        found = raw["resources"]
        if raw.get("prunes"):
            found = removal.pruned(raw, owned, History([]), lambda: [former.document(host)]) or found
        read_document({**raw, "resources": found})
        return {resource["id"]: resource for resource in found}

    def content(self, host: str, identifier: str) -> str:
        """Return the text of a file resource."""
        return str(self.resources(host)[identifier]["content"])


@functools.lru_cache(maxsize=1)
def index() -> str:
    """Return an index of a mirror that holds everything in the lock file."""
    lock = yaml.safe_load((ROOT / "artifacts.lock.yml").read_text())
    artifacts = {
        f"{name}/amd64": {"path": f"/host/{name}", "sha256": "4" * 64, "size": 7} for name in lock["files"]
    }
    images = {ref: {"digest": "sha256:" + "5" * 64, "size": 7} for ref in lock["images"]}
    return json.dumps({"schema": 1, "artifacts": artifacts, "images": images})


@pytest.fixture(scope="session")
def render(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Rendered]:
    """Return a function that renders an inventory, with variables that win over the inventory's.

    ``more`` is the text of another inventory, which is read after it.
    """
    folder = tmp_path_factory.mktemp("site")
    (folder / "index.json").write_text(index())
    key = folder / "key"
    key.write_text(base64.b64encode(bytes(range(32))).decode())
    key.chmod(0o600)
    made: dict[str, Rendered] = {}

    def make(
        inventory: str = "lab", variables: Mapping[str, t.Any] | None = None, more: str = ""
    ) -> Rendered:
        extra = {
            "site_artifacts_index": str(folder / "index.json"),
            "site_pki_key_file": str(key),
            "site_pki_store": str(folder / "pki"),
            **(variables or {}),
        }
        name = json.dumps([inventory, variables, more], sort_keys=True)
        if name not in made:
            sources = [ROOT / "inventories" / inventory]
            if more:
                sources.append(folder / "more.yml")
                sources[-1].write_text(more)
            site = require_site(load_site(sources, extra_vars=extra, environment={}))
            made[name] = Rendered(site)
        return made[name]

    return make
