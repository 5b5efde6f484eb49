# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What goes from the cluster in this run, because the layer that made it does not declare it any more."""

from __future__ import annotations

import json
import typing as t
from collections.abc import Mapping, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.files import write_file
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes import owned
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.owned import Object, Owned
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.context import CONSENT_VARIABLE
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan import listed
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.run_folder import RunFolder
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.arguments import value_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.layers import all_layers

if t.TYPE_CHECKING:
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api


def may_prune(layer: str, declared: Sequence[Object]) -> bool:
    """Tell whether a layer's objects may go: a whole pod network is taken away by cni_migrate.yml only."""
    return bool(declared) or layer not in all_layers().pod_networks


def undeclared(there: Sequence[Owned], layer: str, declared: Sequence[Object]) -> list[Owned]:
    """Return what goes of a layer.

    Args:
        there: everything that the site's layers made.
        layer: the layer.
        declared: all that it declares now.
    """
    return owned.undeclared(there, layer, declared) if may_prune(layer, declared) else []


def there(api: Api, site: str) -> list[Owned]:
    """Return everything that the site's layers made, asked once a run.

    What the run makes itself is declared, and what it deletes is deleted by its uid: so the answer of the
    run's beginning serves all its layers.
    """
    file = RunFolder().path / "owned.json"
    if file.exists():
        return [Owned(*entry) for entry in json.loads(file.read_text(encoding="utf-8"))]
    found = owned.found(api, site)
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_file(file, json.dumps(found).encode(), mode=0o600)
    return found


def insist_on_consent(gone: Sequence[Owned], variables: Mapping[str, t.Any]) -> None:
    """Refuse to delete what data or somebody's access goes with, unless this run consents to it.

    Raises:
        PlanError: it does not.
    """
    listed.insist_on_consent(gone, bool(value_of(variables, CONSENT_VARIABLE)))
