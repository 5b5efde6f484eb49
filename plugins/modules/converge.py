#!/usr/bin/python
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Makes one host match its desired-state document."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: converge
short_description: Make a host match its desired-state document
version_added: "0.1.0"
description:
  - Compares a host with a document of typed resources, plans what differs, and applies it as one transaction.
  - A change that fails undoes the whole transaction. A run that was killed is finished by the next one.
  - Playbooks use the action plugin of the same name, which renders the document from the inventory. It takes
    C(layers) (a list; all of the host's layers by default; with V(rollback) those whose C(meta/layer.yml)
    says C(back_with) come along) or C(phase) (the layers that name it in their C(meta/layer.yml)), O(mode),
    which may also be V(reset), the way back to a bare host, or V(plan), which assesses for
    C(ironspan.hybrid.write_plan), C(inputs) (what C(ironspan.hybrid.etcd_membership) and
    C(ironspan.hybrid.cluster_start) say of the host, and V(join) when it is its turn to join), O(root), and
    for V(reset) C(consent), which must be the site's name, or the host's where destructive steps are
    allowed or planned, and C(skip_unreachable), with which a host that does not answer is no failure.
    It sends each host the secrets that the host's document names, and no others. It signs the certificates
    that the document has and the host asks for, and runs the module once more then.
  - With O(mode=assess) the action fails a host that does not fit, with every reason. One that differs
    from its document is put into the group C(__ironspan_pending); into C(__ironspan_pending_LAYER) when it
    has something to do in a layer that needs credentials (C(etcd), C(control_plane); C(node) when it has not
    joined); and into C(__ironspan_restart_LAYER) when a running service of that layer would restart. Every
    host of the layers C(etcd) and C(control_plane) goes into C(__ironspan_compared_LAYER), and into
    C(__ironspan_bare_LAYER) when it has nothing of them yet, so that the controller has to say how it starts.
  - The action hands on what it is given when O(document) is among it.
author:
  - The ironspan developers
attributes:
  check_mode:
    support: full
    description: Says what would be changed and changes nothing.
  diff_mode:
    support: full
    description: Shows texts and attributes that differ. Secrets are never shown.
options:
  document:
    description:
      - The desired state, schema 1. Its keys are V(schema), V(site), V(host), V(layers), V(fitness) and
        V(resources), optionally V(forget); see the engine's page of the manual for the resource kinds.
        Needed by O(mode=apply) and O(mode=assess).
    type: dict
  layers:
    description: The layers of O(document) that this execution is about; all of them by default.
    type: list
    elements: str
    default: []
  mode:
    description:
      - V(apply) makes the host match.
      - V(assess) compares, collects facts and judges the host's fitness, and writes nothing at all.
      - V(rollback) composes the document that leads back to one that was applied before, and assesses that.
      - V(history) returns the documents that are kept on the host, reports, and what is on trial.
      - V(confirm) makes final what is on trial, V(revert) takes it back.
    type: str
    choices: [apply, assess, rollback, history, confirm, revert]
    default: apply
  secrets:
    description: Secrets that resources refer to by name. They appear in no digest, journal, diff or log.
    type: dict
    default: {}
  certificates:
    description: Signed certificate chains in PEM, by the id of the resource that asked for them.
    type: dict
    default: {}
  mirror:
    description: Address of the artefact mirror, such as V(http://10.0.0.1:8080).
    type: str
    default: ""
  plan:
    description: SHA-256 of the plan that is applied. The host remembers the last one.
    type: str
    default: ""
  release:
    description: Digest and time of the documents of the whole site, by which hosts know a change in common.
    type: dict
    default: {}
  trial:
    description:
      - Everything goes back by itself unless it is confirmed. Keys are V(id), of the run, and V(seconds).
    type: dict
    default: {}
  to:
    description:
      - Beginning of the digest of the document that O(mode=rollback) leads to; by default the one before.
    type: str
    default: ""
  unlike:
    description:
      - With O(mode=rollback), the newest document that is kept in which V(resource) has another V(value) in
        V(field). The action takes it as a text, V(RESOURCE/FIELD), and the value of the inventory.
    type: dict
    default: {}
  root:
    description: Folder to treat as the root of the host. Only tests use another than V(/).
    type: path
    default: /
"""

EXAMPLES = r"""
- name: Converge one file
  ironspan.hybrid.converge:
    document:
      schema: 1
      site: example
      host: rack-1
      layers: [base]
      resources:
        - kind: file
          id: base/motd
          path: /etc/motd
          content: |
            Managed by ironspan.
"""

RETURN = r"""
changes:
  description: What was changed, or would be in check, assess and rollback mode, in order.
  returned: always
  type: list
  elements: dict
  sample: [{resource: base/motd, kind: file, action: create, before: {state: absent}, after: {mode: "0644"}}]
pending:
  description: Resources that wait for an input this execution did not carry, and which.
  returned: always
  type: list
  elements: dict
  sample: [{resource: etcd/peer, needs: "certificate:etcd/peer"}]
csrs:
  description: Certificate signing requests in PEM by the id of the certificate resource.
  returned: always
  type: dict
facts:
  description: A few facts about the host, collected in the same execution.
  returned: success
  type: dict
verdicts:
  description: What the host's fitness was judged to be.
  returned: in assess mode
  type: list
  elements: dict
layers:
  description: What was asked for. Where none were named, all layers of the host.
  returned: in apply mode
  type: list
  elements: str
fingerprint:
  description: SHA-256 of the state that was found, or left behind by apply.
  returned: success
  type: str
digest:
  description: SHA-256 of the document.
  returned: success
  type: str
timings:
  description: Milliseconds spent on each resource.
  returned: success
  type: dict
plan:
  description: SHA-256 of the plan that the last change before this execution belonged to.
  returned: success
  type: str
document:
  description: The composed document, to be applied.
  returned: in rollback mode
  type: dict
rollback:
  description: From which document to which it leads, and what is left as it is.
  returned: in rollback mode
  type: dict
revisions:
  description: The documents that are kept, oldest first, without their resources.
  returned: in history mode
  type: list
  elements: dict
reports:
  description: What the last transactions did, oldest first.
  returned: in history mode
  type: list
  elements: dict
trial:
  description: What is on trial, empty if nothing is.
  returned: in history, confirm and revert mode
  type: dict
resumed:
  description: Whether an earlier run that had been killed was finished.
  returned: always
  type: bool
failed_resource:
  description: The resource that failed.
  returned: on failure
  type: str
remedy:
  description: What to do about it.
  returned: on failure
  type: str
rolled_back:
  description: The resources that were put back as they had been.
  returned: on failure
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Refuse to run: the action plugin sends what the host executes."""
    module = AnsibleModule(argument_spec={})
    module.fail_json(msg="ironspan.hybrid.converge is run by its action plugin, which was not found")


if __name__ == "__main__":
    main()
