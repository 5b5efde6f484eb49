# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A kubeconfig for tasks that talk to the cluster."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

from ansible import constants
from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.assembly.ansible_run import site_of_run
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import Session
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.files import write_file
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import PkiError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import SiteError

DOCUMENTATION = r"""
---
name: kubeconfig
short_description: Path of a short-lived kubeconfig of the site's cluster
version_added: "0.1.0"
description:
  - Makes a client certificate with the site's PKI store, writes a kubeconfig with it into this run's
    temporary folder, and returns its path. The file is readable by its owner only and goes with the run.
  - It is a path, because C(kubernetes.core) prints a kubeconfig given as a dictionary with C(-vvv),
    private key included.
  - The certificate is in the group C(kubeadm:cluster-admins), which C(kubeadm init) binds to
    C(cluster-admin).
author:
  - The ironspan developers
options:
  hours:
    description: Lifetime of the certificate, at most V(1).
    type: float
    default: 1.0
  break_glass:
    description: Be in C(system:masters) instead, which RBAC cannot take away. For repairing RBAC only.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Apply an object
  kubernetes.core.k8s:
    kubeconfig: "{{ lookup('ironspan.hybrid.kubeconfig') }}"
    definition:
      apiVersion: v1
      kind: Namespace
      metadata:
        name: example
    apply: true
"""

RETURN = r"""
_raw:
  description: The path.
  type: list
  elements: path
"""


class LookupModule(LookupBase):  # type: ignore[misc]
    """The lookup ``ironspan.hybrid.kubeconfig``."""

    def run(
        self, terms: list[str], variables: dict[str, t.Any] | None = None, **kwargs: t.Any
    ) -> list[t.Any]:
        """Write the kubeconfig, return its path."""
        self.set_options(var_options=variables, direct=kwargs)
        if terms:
            raise AnsibleLookupError("kubeconfig takes no terms")
        try:
            session = Session(site_of_run(variables or {}))
            made = session.kubeconfig(self.get_option("hours"), break_glass=self.get_option("break_glass"))
        except (PkiError, SiteError) as error:
            raise AnsibleLookupError(str(error)) from error
        folder = Path(constants.DEFAULT_LOCAL_TMP) / "ironspan"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Written again each time: an earlier task may have taken longer than the certificate lives.
        path = folder / "kubeconfig"
        write_file(path, json.dumps(made).encode(), 0o600)
        return [str(path)]
