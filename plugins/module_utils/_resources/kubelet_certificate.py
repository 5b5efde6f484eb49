# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kind ``kubelet_certificate``: what the kubelet renews by itself is replaced when it cannot.

That is so when its authority is changed, and when the host was away for so long that it expired. The key
stays the kubelet's own; the files are as its certificate store leaves them (client-go, util/certificate).
"""

from __future__ import annotations

import os
import re
import time
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._resources._write import (
    read_text,
    signature,
    write_file,
)
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources.certificate import (
    describe,
    difference,
    issuer_by_key,
)
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources.key_and_csr import (
    certificate_request,
)
from ansible_collections.ironspan.hybrid.plugins.module_utils._system import files, paths
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import (
    Change,
    Field,
    Host,
    Pending,
    ResourceError,
    Spec,
    State,
)

KEY = re.compile(r"-----BEGIN ([A-Z ]*PRIVATE KEY)-----.*?-----END \1-----\n?", re.DOTALL)


class KubeletCertificateKind:
    """Asks the controller for a certificate for the key that the kubelet has."""

    name = "kubelet_certificate"
    fields: t.Mapping[str, Field] = {
        "path": Field((str,), required=True),
        "profile": Field((str,), required=True, choices=("kubelet-client", "kubelet-serving")),
        "csr": Field((dict,), required=True),
        # Read by the controller, which signs only for what the host's TPM has proved.
        "attestation": Field((dict,), default={}),
        "issuer_sha256": Field((str,), required=True),
        "ca_path": Field((str,), default="/etc/kubernetes/pki/ca.crt"),
        "renew_before_days": Field((int,), default=30),
    }

    def compare(self, spec: Spec, host: Host) -> t.Optional[Change]:
        """Compare what is there; a kubelet without a certificate asks for its first one itself.

        Raises:
            Pending: another certificate is needed and was not carried; the request is offered.
        """
        if signature(host, spec["path"]) is None:
            return None
        facts = self._facts(spec, host)
        before, after, reason = difference(
            facts, spec["csr"], facts["public"], spec["issuer_sha256"], spec["renew_before_days"]
        )
        if not after:
            return None
        try:
            host.certificate(spec["id"])
        except Pending:
            host.offer_csr(spec["id"], certificate_request(host, spec["path"], spec["csr"]))
            raise
        return Change("update", before, after, reason)

    def apply(self, spec: Spec, change: Change, host: Host) -> None:
        """Write certificate and key into a new file and let the link point to it."""
        former, chain = read_text(host, spec["path"]) or "", host.certificate(spec["id"])
        facts = describe(host, chain)
        wanted = {**facts, "issuer_sha256": spec["issuer_sha256"]}
        before, _, reason = difference(
            wanted, spec["csr"], describe(host, former)["public"], spec["issuer_sha256"], 0
        )
        key = KEY.search(former)
        if before or not key:
            raise ResourceError(
                f"the certificate that was signed for {spec['id']} does not fit: {reason or 'no key'}",
                "Run again for a fresh request: the kubelet may have renewed its own meanwhile.",
            )
        folder, name = os.path.split(spec["path"])
        stamp = time.strftime("%Y-%m-%d-%H-%M-%S", time.gmtime())
        path = f"{folder}/{name.replace('current', stamp)}"
        host.backup(spec["path"])
        host.backup(path)
        write_file(host, path, (chain + key.group(0)).encode(), 0o600)
        _point(host.path(spec["path"]), os.path.basename(path))
        host.remember(
            spec["id"],
            {**wanted, "signature": signature(host, spec["path"]), "wanted": spec["issuer_sha256"]},
        )

    def undo(self, spec: Spec, change: Change, host: Host) -> None:
        """Nothing: link and file come back by themselves."""

    def _facts(self, spec: Spec, host: Host) -> State:
        note, now = host.note(spec["id"]), signature(host, spec["path"])
        # Of another authority than the one asked for then, nothing is known.
        if note.get("signature") == now and note.get("wanted") == spec["issuer_sha256"]:
            return note
        text = read_text(host, spec["path"]) or ""
        facts = describe(host, text)
        facts["issuer_sha256"] = issuer_by_key(host, facts, spec["ca_path"], spec["issuer_sha256"])
        if facts["issuer_sha256"]:
            # Not otherwise: the CA file may have been another one than the document's until now.
            host.remember(spec["id"], {**facts, "signature": now, "wanted": spec["issuer_sha256"]})
        return facts


def _point(link: str, target: str) -> None:
    descriptor, temporary = files.temporary_beside(link)
    os.close(descriptor)
    paths.remove(temporary)
    paths.make_link(target, temporary)
    paths.rename(temporary, link)
    files.sync_folder(os.path.dirname(link))


KIND = KubeletCertificateKind()
