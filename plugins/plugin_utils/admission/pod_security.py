# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Asks the API server which pods the Pod Security Standard would refuse, before it is in force.

The standard's own plugin tells this when a namespace gets a label for a level. So each namespace without
one is given it as a dry run, and the warnings of the answer name the pods. Nothing is written.
"""

from __future__ import annotations

import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.declared import RECORD, Admission
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.policy import PodSecurity
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.surroundings import ENFORCE, LEVELS
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api

_MERGE = "application/merge-patch+json"
_NAMESPACES = "/api/v1/namespaces"
_RECORD = f"{_NAMESPACES}/kube-system/configmaps/{RECORD}"


def about_to_be_refused(api: Api, admission: Admission | None) -> list[str]:
    """Return which pods could not be made again once Pod Security's level is what the policy file says.

    Args:
        api: the cluster.
        admission: the site's, None where it has no policy file.

    Returns:
        NAMESPACE/POD and why, one line a kind of pod; nothing where this level is in force already.
    """
    if admission is None:
        return []
    wanted = admission.record()["data"]["podSecurity"]
    if (api.find(_RECORD) or {}).get("data", {}).get("podSecurity") == wanted:
        return []
    return refused_by(api, admission.policy.pod_security)


def refused_by(api: Api, security: PodSecurity) -> list[str]:
    """Return which pods that run break the level of namespaces without a label of their own.

    Args:
        api: the cluster.
        security: the level, and the namespaces that are exempt.
    """
    if security.level not in LEVELS[1:]:
        return []
    exempt = {entry.namespace for entry in security.exemptions}
    found: list[str] = []
    for space in api.get(_NAMESPACES)["items"]:
        name = str(space["metadata"]["name"])
        if name not in exempt and ENFORCE not in space["metadata"].get("labels", {}):
            found += [f"{name}/{line}" for line in _warned(api, name, security.level)]
    return found


def _warned(api: Api, name: str, level: str) -> list[str]:
    """Return the lines about pods of one namespace; the one in front of them only tells that some follow."""
    warnings: list[str] = []
    body: dict[str, t.Any] = {"metadata": {"labels": {ENFORCE: level}}}
    api.request("PATCH", f"{_NAMESPACES}/{name}", body, _MERGE, {"dryRun": "All"}, warnings=warnings)
    told = next(
        (at for at, line in enumerate(warnings) if line.startswith("existing pods in ")), len(warnings)
    )
    return warnings[told + 1 :]
