#!/usr/bin/python
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""One host's part of a restore of etcd."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: etcd_restore
short_description: Do a host's part of a restore of etcd
version_added: "0.3.0"
description:
  - The steps of C(playbooks/etcd_restore.yml) on one host. Each may be killed at any moment, and running it
    again finishes it. Data are renamed, never deleted.
  - The playbook says in which order hosts take their steps.
author:
  - The ironspan developers
attributes:
  check_mode:
    support: full
    description: Only V(surveyed) and V(admitted) do anything, and they only read; nothing is rebuilt.
  diff_mode:
    support: none
    description: A store is no text.
options:
  state:
    description:
      - V(surveyed) reads what the host has.
      - V(admitted) refuses what would go wrong, before anything is stopped; the backup is rebuilt for that
        (O(rebuild)).
      - V(stopped) stops the programs of a control plane (O(pods)), and etcd (O(data)), whose data it renames.
      - V(restored) does what V(stopped) does, makes data, serves them for this host only, and begins another
        epoch of backups.
      - V(served) serves them to all (O(data)), and starts the programs of a control plane (O(pods)).
      - V(finished) ends the restore on the host that it was made on.
    type: str
    required: true
    choices: [surveyed, admitted, stopped, restored, served, finished]
  point:
    description: What is restored; nothing for V(stopped), which is about all other hosts.
    type: str
    default: ""
  source:
    description: Where data come from. V(auto) takes a survivor's where they are newer than the backup.
    type: str
    choices: [auto, backup, survivor]
    default: auto
  keep_cluster:
    description: Data of this cluster are the restored ones already, and V(stopped) leaves them.
    type: str
    default: ""
  pods:
    description: Whether V(stopped), V(restored) and V(served) are about the programs of a control plane.
    type: bool
    default: false
  data:
    description: Whether V(stopped), V(restored) and V(served) are about etcd and its data.
    type: bool
    default: false
  after:
    description:
      - URL, without a port, of the host whose API server V(served) waits for, 15 s at most, before it starts
        the one of this host; empty to start it at once.
    type: str
    default: ""
  rebuild:
    description: Whether V(admitted) first makes the database of the point from the backup; not in a check.
    type: bool
    default: false
  force:
    description: Consent to V(admitted) for data and a backup of different clusters.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Read what the host has
  ironspan.hybrid.etcd_restore:
    state: surveyed
  register: etcd_restore_survey
"""

RETURN = r"""
refused:
  description: Whether the backup program refused, and nothing was touched.
  returned: failure of the backup program
  type: bool
configured:
  description: Whether the host has the configuration of a member.
  returned: V(surveyed)
  type: bool
url:
  description: URL that other members reach the host at, without a port.
  returned: V(surveyed), on a member
  type: str
data:
  description: Cluster, member, commit index and bytes of its data; null without data.
  returned: V(surveyed)
  type: dict
going_on:
  description: The record of an unfinished restore with the same arguments on this host; empty without one.
  returned: V(surveyed)
  type: dict
aside:
  description: Where the former data are, empty when there were none.
  returned: V(stopped) and V(restored)
  type: str
revision:
  description: The last revision that was restored.
  returned: V(restored)
  type: int
bump:
  description: By how much revisions were raised after it.
  returned: V(restored)
  type: int
source:
  description: V(backup) or V(survivor).
  returned: V(restored)
  type: str
cluster:
  description: Id of the new cluster.
  returned: V(restored)
  type: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.ironspan.hybrid.plugins.module_utils._restore import steps
from ansible_collections.ironspan.hybrid.plugins.module_utils._restore.backup_program import ProgramError
from ansible_collections.ironspan.hybrid.plugins.module_utils._restore.machine import Machine, RestoreError

STATES = {
    "surveyed": steps.surveyed,
    "admitted": steps.admitted,
    "stopped": steps.stopped,
    "restored": steps.restored,
    "served": steps.served,
    "finished": steps.finished,
}
READING = ("surveyed", "admitted")


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "required": True, "choices": list(STATES)},
            "point": {"type": "str", "default": ""},
            "source": {"type": "str", "choices": ["auto", "backup", "survivor"], "default": "auto"},
            "keep_cluster": {"type": "str", "default": ""},
            "pods": {"type": "bool", "default": False},
            "data": {"type": "bool", "default": False},
            "after": {"type": "str", "default": ""},
            "rebuild": {"type": "bool", "default": False},
            "force": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    state = module.params["state"]
    if module.check_mode and state not in READING:
        module.exit_json(changed=True)
    machine = Machine()
    module.params["rebuild"] = module.params["rebuild"] and not module.check_mode
    try:
        if state not in READING:
            machine.lock()
        module.exit_json(**STATES[state](machine, module.params))
    except ProgramError as error:
        module.fail_json(msg=str(error), refused=error.refused and state in READING)
    except RestoreError as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
