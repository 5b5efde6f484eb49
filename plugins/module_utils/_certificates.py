# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Reads the certificates that a host of a cluster has. Public halves only; no program is run.

What a certificate says is worked out on the controller: here they are only found.
"""

from __future__ import annotations

import base64
import binascii
import glob
import os
import re
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._system import paths

FILES = (
    "/etc/etcd/pki/*.crt",
    "/etc/kubernetes/pki/*.crt",
    "/etc/kubernetes/pki/etcd/*.crt",
    "/etc/haproxy/kubernetes-ca.crt",
    "/var/lib/kubelet/pki/kubelet-client-current.pem",
    "/var/lib/kubelet/pki/kubelet-server-current.pem",
)
KUBECONFIGS = "/etc/kubernetes/*.conf"
FIELDS = ("client-certificate-data", "certificate-authority-data")
PUBLIC_KEYS, PRIVATE_KEY = "/etc/kubernetes/pki/sa.pub", "/etc/kubernetes/pki/sa.key"
PROGRAMS = ("etcd", "kubelet", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
Found = t.Dict[str, t.Any]


def read(root: str = "/") -> Found:
    """Return what there is.

    Args:
        root: folder to treat as the root of the host; for tests.

    Returns:
        ``certificates``: path, field (of a kubeconfig, else "") and PEM of each; ``unreadable``: files that
        hold none; ``written``: Unix time at which each file was written; ``started``: Unix time at which each
        program of ``PROGRAMS`` that runs was started, the latest if there are several; ``public_keys``: what
        tokens of service accounts are checked with, PEM.
    """
    certificates: t.List[Found] = []
    unreadable: t.List[str] = []
    written: t.Dict[str, float] = {}
    for pattern in (*FILES, KUBECONFIGS):
        for real in sorted(glob.glob(_below(root, pattern))):
            path = "/" + os.path.relpath(real, root)
            try:
                with paths.reading(real) as stream:
                    text = stream.read().decode("ascii", "replace")
                    written[path] = os.fstat(stream.fileno()).st_mtime
            except OSError:
                unreadable.append(path)
                continue
            found = list(_embedded(text)) if pattern == KUBECONFIGS else [("", text)]
            blocks = [(field, pem) for field, content in found for pem in CERTIFICATE.findall(content)]
            certificates += [{"path": path, "field": field, "pem": pem} for field, pem in blocks]
            if not blocks and pattern != KUBECONFIGS:
                unreadable.append(path)
    public_keys = ""
    for path in (PUBLIC_KEYS, PRIVATE_KEY):
        if os.path.exists(_below(root, path)):
            written[path] = os.stat(_below(root, path)).st_mtime
    if PUBLIC_KEYS in written:
        public_keys = paths.text(_below(root, PUBLIC_KEYS))
    return {
        "certificates": certificates,
        "unreadable": unreadable,
        "written": written,
        "started": started(root),
        "public_keys": public_keys,
    }


def started(root: str) -> t.Dict[str, float]:
    """Return when each program was started, from /proc; clock ticks since the boot count from its time."""
    times: t.Dict[str, float] = {}
    ticks = os.sysconf("SC_CLK_TCK")
    boot = _boot_time(root)
    for folder in glob.glob(_below(root, "/proc/[0-9]*")):
        try:
            stat = paths.text(f"{folder}/stat")
            name = os.path.basename(paths.text(f"{folder}/cmdline").split("\0", 1)[0])
        except OSError:
            continue
        if name in PROGRAMS:
            # The name in brackets may hold anything; the 22nd field is counted from behind it.
            since_boot = int(stat.rpartition(")")[2].split()[19]) / ticks
            times[name] = max(times.get(name, 0.0), boot + since_boot)
    return times


def _boot_time(root: str) -> float:
    found = re.search(r"^btime (\d+)", paths.text(_below(root, "/proc/stat")), re.MULTILINE)
    return float(found.group(1)) if found else 0.0


def _embedded(text: str) -> t.Iterator[t.Tuple[str, str]]:
    for field in FIELDS:
        for data in re.findall(rf"\b{field}:[ \t]*\"?([A-Za-z0-9+/=]+)", text):
            try:
                yield field, base64.b64decode(data, validate=True).decode("ascii")
            except (binascii.Error, ValueError):
                continue


def _below(root: str, path: str) -> str:
    return os.path.join(root, path.lstrip("/"))
