# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a site of a size gives its control plane, read from the document that a host of it would get."""

from __future__ import annotations

import base64
import dataclasses
import typing as t
from pathlib import Path

import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.assembly.loader import load_site, require_site
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.sizes import Profile, profile_for

from tests.support.playbooks import ROOT
from tests.unit.roles.conftest import Rendered, index

_POD_NETWORK = "10.128.0.0"


@dataclasses.dataclass(frozen=True)
class Settings:
    """Flags of one simulated control plane.

    Args:
        profile: of the size.
        pod_cidr: has room for the profile's nodes.
        api_server: flags of the API server that name no file.
        controller_manager: the same of the controller manager.
        scheduler: the same of the scheduler.
        audit_policy: what its audit log has.
    """

    profile: Profile
    pod_cidr: str
    api_server: dict[str, str]
    controller_manager: dict[str, str]
    scheduler: dict[str, str]
    audit_policy: str


def render(nodes: int, folder: Path, *, with_profile: bool) -> Settings:
    """Render the example site at a size and return what its first control plane gets.

    Args:
        nodes: of the cluster.
        folder: for the files that rendering needs.
        with_profile: False for a site that does not say how large it will be.

    Raises:
        SiteError: no site may have that many nodes.
    """
    variables = _variables(folder)
    profile = profile_for(nodes)
    pod_cidr = f"{_POD_NETWORK}/{profile.pod_prefix}"
    variables |= {"site_pod_cidr": pod_cidr, "site_planned_nodes": nodes if with_profile else 0}
    site = require_site(load_site([ROOT / "inventories" / "example"], extra_vars=variables, environment={}))
    return of(Rendered(site), profile)


def of(rendered: Rendered, profile: Profile) -> Settings:
    """Return what the first control plane of a site gets."""
    resources = rendered.resources(rendered.site.group("control_plane")[0].name)
    configuration = next(
        document
        for document in yaml.safe_load_all(resources["control_plane/member"]["config"])
        if document["kind"] == "ClusterConfiguration"
    )
    return Settings(
        profile=profile,
        pod_cidr=configuration["networking"]["podSubnet"],
        api_server=_without_files(configuration["apiServer"]),
        controller_manager=_without_files(configuration["controllerManager"]),
        scheduler=_without_files(configuration["scheduler"]),
        audit_policy=resources["control_plane/audit-policy"]["content"],
    )


def _variables(folder: Path) -> dict[str, t.Any]:
    key = folder / "key"
    key.write_text(base64.b64encode(bytes(range(32))).decode())
    key.chmod(0o600)
    (folder / "index.json").write_text(index())
    return {
        "site_artifacts_index": str(folder / "index.json"),
        "site_pki_key_file": str(key),
        "site_pki_store": str(folder / "pki"),
    }


def _without_files(part: dict[str, t.Any]) -> dict[str, str]:
    given = {argument["name"]: argument["value"] for argument in part["extraArgs"]}
    return {name: value for name, value in given.items() if not value.startswith("/")}
