# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kind ``kubeconfig_authority``: a kubeconfig trusts the certificates of a file, and no others."""

from __future__ import annotations

import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import _kubeconfig
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources._write import read_text
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources.key_and_csr import (
    fingerprint,
    pem_blocks,
)
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import Change, Field, Host, Spec


class KubeconfigAuthorityKind:
    """Follows a CA file with the copy of it that a join left in a kubeconfig."""

    name = "kubeconfig_authority"
    fields: t.Mapping[str, Field] = {
        "path": Field((str,), required=True),
        "ca_path": Field((str,), default="/etc/kubernetes/pki/ca.crt"),
    }

    def compare(self, spec: Spec, host: Host) -> t.Optional[Change]:
        """Compare text; before the host has joined there is no kubeconfig and nothing to do."""
        authority = read_text(host, spec["ca_path"])
        if authority is None or _kubeconfig.trusts(host, spec["path"], authority):
            return None
        text = read_text(host, spec["path"]) or ""
        before = _fingerprints(_kubeconfig.embedded(text, _kubeconfig.AUTHORITY))
        return Change("update", {"trusts": before}, {"trusts": _fingerprints(authority)}, "trusts others")

    def apply(self, spec: Spec, change: Change, host: Host) -> None:
        """Write the certificates into it; everything else in it stays."""
        host.backup(spec["path"])
        _kubeconfig.trust(host, spec["path"], read_text(host, spec["ca_path"]) or "")

    def undo(self, spec: Spec, change: Change, host: Host) -> None:
        """Nothing: the file comes back by itself."""


def _fingerprints(pem: str) -> t.List[str]:
    return [fingerprint(der) for der in pem_blocks(pem)]


KIND = KubeconfigAuthorityKind()
