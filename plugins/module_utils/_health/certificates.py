# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""When the certificates on a host end. No program is run: an installation has a dozen of them."""

from __future__ import annotations

import base64
import calendar
import glob
import os
import re
import time
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._system import paths

PLACES = (
    "/etc/kubernetes/pki/*.crt",
    "/etc/kubernetes/pki/etcd/*.crt",
    "/etc/kubernetes/*.conf",
    "/etc/etcd/pki/*.crt",
    "/etc/haproxy/*.crt",
    "/var/lib/kubelet/pki/kubelet-client-current.pem",
    "/var/lib/kubelet/pki/kubelet-server-current.pem",
)
_BLOCK = re.compile(r"-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----", re.DOTALL)
_EMBEDDED = re.compile(r"^\s*client-certificate-data:\s*(\S+)\s*$", re.MULTILINE)
_SEQUENCE, _VERSION, _UTC_TIME, _GENERALIZED_TIME = 0x30, 0xA0, 0x17, 0x18
LARGEST_BYTES = 1 << 20


def _element(data: bytes, at: int) -> t.Tuple[int, int, int]:
    """Return tag, start and end of the DER element at an offset."""
    tag, length, start = data[at], data[at + 1], at + 2
    if length & 0x80:
        count = length & 0x7F
        length = int.from_bytes(data[start : start + count], "big")
        start += count
    if start + length > len(data):
        raise ValueError("a DER element is longer than its file")
    return tag, start, start + length


def not_after(der: bytes) -> int:
    """Return when a certificate ends, as Unix time (RFC 5280, section 4.1).

    Args:
        der: the certificate.

    Raises:
        ValueError: it is no certificate.
    """
    try:
        _, at, _ = _element(der, 0)
        _, at, _ = _element(der, at)
        tag, _, end = _element(der, at)
        at = end if tag == _VERSION else at
        for _field in ("serial", "algorithm", "issuer"):
            at = _element(der, at)[2]
        tag, at, _ = _element(der, at)
        if tag != _SEQUENCE:
            raise ValueError("no validity")
        tag, start, end = _element(der, _element(der, at)[2])
        text = der[start:end].decode("ascii")
        if tag == _UTC_TIME:
            # RFC 5280, section 4.1.2.5.1: two digits, from 1950 on.
            text = ("19" if int(text[:2]) >= 50 else "20") + text
        elif tag != _GENERALIZED_TIME:
            raise ValueError("no time")
        return calendar.timegm(time.strptime(text, "%Y%m%d%H%M%SZ"))
    except (IndexError, UnicodeDecodeError) as error:
        raise ValueError("this is no certificate") from error


def in_text(text: str) -> t.List[bytes]:
    """Return the certificates (DER) in a PEM file, or the client's in a kubeconfig."""
    pems = [text]
    for data in _EMBEDDED.findall(text):
        try:
            pems.append(base64.b64decode(data).decode("ascii"))
        except ValueError:  # binascii.Error and UnicodeDecodeError are such
            continue
    found = []
    for pem in pems:
        for body in _BLOCK.findall(pem):
            try:
                found.append(base64.b64decode("".join(body.split()), validate=True))
            except ValueError:
                continue
    return found


def collect(root: str) -> t.List[t.Dict[str, t.Any]]:
    """Return path and end (Unix time) of the first certificate of every file, the one that is shown.

    Args:
        root: the host's root folder.
    """
    found = []
    for place in PLACES:
        for path in sorted(glob.glob(root.rstrip("/") + place)):
            try:
                if os.path.getsize(path) > LARGEST_BYTES:
                    continue
                certificates = in_text(paths.text(path))
                if certificates:
                    end = not_after(certificates[0])
                    found.append({"path": path[len(root.rstrip("/")) :], "not_after": end})
            except (OSError, ValueError) as error:
                found.append({"path": path[len(root.rstrip("/")) :], "error": str(error)})
    return found
