#!/usr/bin/python
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin of the same name; nothing here runs on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: backup_store
short_description: Make and check the containers that backups of etcd go to
version_added: "0.3.0"
description:
  - Creates containers of Azure Blob storage with a time-based retention policy under which append blobs
    may grow.
  - Refuses accounts that accept keys, allow public containers or can be reached from the internet; what is
    wrong with an account is said with the command that puts it right, and nothing is changed.
  - Says which custom roles have to exist, and checks those of the identities that are named as far as the
    controller's identity may read role assignments. An identity that may do too much fails the task.
  - A policy is locked only where O(lock) names the container. That can never be undone; nor can extending a
    locked policy.
  - It is an action plugin and runs on the controller only. It needs azure-identity and azure-mgmt-storage
    there (C(pip install 'ironspan[azure]')). Hosts speak to the container, never to the resource manager.
author:
  - The ironspan developers
attributes:
  check_mode:
    support: full
    description: Everything is read, nothing is changed.
  diff_mode:
    support: full
    description: Shows public access and policy of every container that is not as wanted.
options:
  containers:
    description: The containers, one or more for every region.
    type: list
    elements: dict
    required: true
    suboptions:
      subscription:
        description: Id of the subscription.
        type: str
        required: true
      resource_group:
        description: Name of the resource group.
        type: str
        required: true
      account:
        description: Name of the storage account, which must exist.
        type: str
        required: true
      container:
        description: Name of the container.
        type: str
        required: true
      retention_days:
        description: For how many days nobody can delete or change what was written, 1 to 146000.
        type: int
        required: true
      writers:
        description: Object ids of the identities that write backups, those of the etcd hosts.
        type: list
        elements: str
        default: []
      collectors:
        description: Object ids of the identities that delete backups whose retention is over.
        type: list
        elements: str
        default: []
      drills:
        description: Object ids of the identities that prove backups and record it.
        type: list
        elements: str
        default: []
      readers:
        description: Object ids of the identities that only read backups.
        type: list
        elements: str
        default: []
  management:
    description: How the controller speaks to Azure's resource manager.
    type: dict
    default: {}
    suboptions:
      kind:
        description: Who the controller is to Azure; V(azure_cli) is whoever ran C(az login).
        type: str
        choices: [azure_cli, managed_identity, workload_identity]
        default: azure_cli
      client_id:
        description: Which user-assigned identity.
        type: str
        default: ""
      tenant_id:
        description: Id of the tenant.
        type: str
        default: ""
      token_file:
        description: For V(workload_identity), path of the projected token.
        type: str
        default: ""
      authority:
        description: What issues tokens, where it is not Microsoft Entra's public cloud.
        type: str
        default: ""
      url:
        description: Address of the resource manager.
        type: str
        default: https://management.azure.com
      audience:
        description: What its tokens are for.
        type: str
        default: https://management.azure.com
      ca:
        description: Path of a further authority to trust; empty means those of the system's list.
        type: str
        default: ""
  lock:
    description: ACCOUNT/CONTAINER whose policy is locked for ever, or extended where it is locked already.
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: Containers for backups
  ironspan.hybrid.backup_store:
    containers:
      - subscription: 00000000-0000-0000-0000-000000000001
        resource_group: backup
        account: acmebackupweu
        container: etcd
        retention_days: 30
        writers: [00000000-0000-0000-0000-000000000002]
  run_once: true
"""

RETURN = r"""
changes:
  description: What was changed, or would be in check mode.
  returned: success
  type: list
  elements: str
roles:
  description: The custom roles that have to exist, each with the scope to assign it at.
  returned: success
  type: list
  elements: dict
not_seen:
  description: Identities whose roles the controller's identity may not read.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Refuse to run: the action plugin does the work."""
    module = AnsibleModule(
        argument_spec={
            "containers": {"type": "list", "elements": "dict", "required": True},
            "management": {"type": "dict", "default": {}},
            "lock": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    module.fail_json(msg="backup_store runs on the controller only, by its action plugin")


if __name__ == "__main__":
    main()
