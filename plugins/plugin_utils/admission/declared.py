# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a site's admission policy makes of the cluster, and of the disks of its control planes."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.objects import (
    LABEL,
    Object,
    policy_objects,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.policy import Policy

STATIC = ".static.k8s.io"
"""How names of policies from files must end; the API takes no object with such a name (KEP 5793)."""
FOLDER = "/etc/kubernetes/ironspan/admission"
RECORD = "ironspan-admission"
_CONFIGURATION = "apiserver.config.k8s.io/v1"


@dataclasses.dataclass(frozen=True, slots=True)
class Admission:
    """The admission policy of a site, and where it is kept.

    Args:
        policy: from the policy file.
        from_files: API servers read it from their host's disk, where the API cannot delete it.
    """

    policy: Policy
    from_files: bool

    def policies(self) -> list[Object]:
        """Return policies and bindings as objects of the API, wherever they are kept."""
        return policy_objects(self.policy)

    def objects(self) -> list[Object]:
        """Return the objects of the cluster: a record, and the policies that are not in files."""
        kept = [item for item in self.policies() if not (self.from_files and _fits_file(item))]
        return [self.record(), *kept]

    def record(self) -> Object:
        """Return the object that tells which policies were tried and put in force."""
        digest = hashlib.sha256(json.dumps(self.policies(), sort_keys=True).encode()).hexdigest()
        security = self.policy.pod_security
        exempt = sorted(entry.namespace for entry in security.exemptions)
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": RECORD, "namespace": "kube-system", "labels": dict(LABEL)},
            "data": {
                "sha256": digest,
                "kept": "files" if self.from_files else "objects",
                "podSecurity": " ".join([security.level, *exempt]),
            },
        }

    @property
    def on_disk(self) -> bool:
        """Tell whether API servers need a configuration."""
        return self.from_files or self.policy.pod_security.level != "none"

    def configuration(self) -> Object:
        """Return the configuration of the API server's admission plugins."""
        plugins = []
        security = self.policy.pod_security
        if security.level != "none":
            plugins.append({"name": "PodSecurity", "configuration": _pod_security(self.policy)})
        if self.from_files:
            for name, kind in (("validating", "Validating"), ("mutating", "Mutating")):
                configuration = {
                    "apiVersion": _CONFIGURATION,
                    "kind": f"{kind}AdmissionPolicyConfiguration",
                    "staticManifestsDir": f"{FOLDER}/{name}",
                }
                plugins.append({"name": f"{kind}AdmissionPolicy", "configuration": configuration})
        return {"apiVersion": _CONFIGURATION, "kind": "AdmissionConfiguration", "plugins": plugins}

    def manifest(self, name: str) -> Object:
        """Return the file of policies for one plugin.

        Args:
            name: ``validating`` or ``mutating``.
        """
        kind = f"{name.capitalize()}AdmissionPolicy"
        items = [
            _static(item) for item in self.policies() if item["kind"].startswith(kind) and _fits_file(item)
        ]
        return {"apiVersion": "v1", "kind": "List", "items": items}


def _fits_file(item: Object) -> bool:
    """Tell whether a policy can be in a file: one that looks other objects up cannot (KEP 5793)."""
    return not {"paramKind", "paramRef"} & set(item["spec"])


def _static(item: Object) -> Object:
    made = copy.deepcopy(item)
    made["metadata"]["name"] += STATIC
    if "policyName" in made["spec"]:
        made["spec"]["policyName"] += STATIC
    return made


def _pod_security(policy: Policy) -> Object:
    level = policy.pod_security.level
    defaults = dict.fromkeys(("enforce", "audit", "warn"), level)
    versions = {f"{mode}-version": "latest" for mode in defaults}
    return {
        "apiVersion": "pod-security.admission.config.k8s.io/v1",
        "kind": "PodSecurityConfiguration",
        "defaults": {**defaults, **versions},
        "exemptions": {
            "usernames": [],
            "runtimeClasses": [],
            "namespaces": sorted(entry.namespace for entry in policy.pod_security.exemptions),
        },
    }
