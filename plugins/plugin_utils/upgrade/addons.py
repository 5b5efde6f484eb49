# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""kube-proxy and CoreDNS follow the control planes: their image, and nothing else, is changed."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ApiError

_APPS = "/apis/apps/v1/namespaces/kube-system"
_ATTEMPTS = 5


def follow(api: Api, kubernetes: str, coredns: str, *, dry_run: bool = False) -> list[str]:
    """Give the addons their versions.

    kubeadm does this for kube-proxy with the last control plane; here only what it left is done. It does not
    for CoreDNS, whose configuration it would migrate by tables that end with its own release.

    Args:
        api: the cluster.
        kubernetes: version of kube-proxy.
        coredns: version of CoreDNS.
        dry_run: only tell.

    Returns:
        What changed, one clause each.
    """
    wanted = {"daemonsets/kube-proxy": kubernetes, "deployments/coredns": coredns}
    return [text for path, version in wanted.items() if (text := _set_tag(api, path, version, dry_run))]


def _set_tag(api: Api, path: str, version: str, dry_run: bool) -> str:
    for attempt in range(1, _ATTEMPTS + 1):
        item = api.find(f"{_APPS}/{path}")
        if item is None:
            return ""
        containers = item["spec"]["template"]["spec"]["containers"]
        repository, _, tag = containers[0]["image"].partition("@")[0].rpartition(":")
        if tag == f"v{version}":
            return ""
        containers[0]["image"] = f"{repository}:v{version}"
        if dry_run:
            break
        body = {
            "metadata": {"resourceVersion": item["metadata"]["resourceVersion"]},
            "spec": {"template": {"spec": {"containers": containers}}},
        }
        try:
            api.merge(f"{_APPS}/{path}", body)
            break
        except ApiError as error:
            if error.status != 409 or attempt == _ATTEMPTS:
                raise
    return f"{path}: {tag} -> v{version}"
