# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Text of kubeconfig files as kubeadm and the kubelet write them: one cluster, one user, data in base64."""

from __future__ import annotations

import base64
import binascii
import os
import re

from ansible_collections.ironspan.hybrid.plugins.module_utils._resources._write import read_text, write_file
from ansible_collections.ironspan.hybrid.plugins.module_utils._system import paths
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import Host

AUTHORITY, CLIENT = "certificate-authority-data", "client-certificate-data"


def embedded(text: str, field: str) -> str:
    """Return what a field of a kubeconfig holds, decoded; "" when it is not there or is no base64.

    Args:
        text: the kubeconfig.
        field: ``AUTHORITY`` or ``CLIENT``.
    """
    match = re.search(rf"\b{field}:[ \t]*\"?([A-Za-z0-9+/=]+)", text)
    try:
        return base64.b64decode(match.group(1), validate=True).decode("ascii") if match else ""
    except (binascii.Error, ValueError):
        return ""


def with_authority(text: str, authority: str) -> str:
    """Return a kubeconfig that trusts these certificates (PEM); unchanged when it has none embedded."""
    data = base64.b64encode(authority.encode()).decode()
    return re.sub(rf"(\b{AUTHORITY}:[ \t]*)\"?[A-Za-z0-9+/=]+\"?", rf"\g<1>{data}", text)


def trusts(host: Host, path: str, authority: str) -> bool:
    """Tell whether a kubeconfig trusts just these certificates; one that is not there has nothing to do."""
    text = read_text(host, path)
    return text is None or text == with_authority(text, authority)


def trust(host: Host, path: str, authority: str) -> None:
    """Let a kubeconfig trust these certificates; mode and owner stay. The caller has backed it up."""
    with paths.reading(host.path(path)) as stream:
        status = os.fstat(stream.fileno())
        text = with_authority(stream.read().decode("utf-8", "replace"), authority)
    write_file(host, path, text.encode(), status.st_mode & 0o7777, (status.st_uid, status.st_gid))
