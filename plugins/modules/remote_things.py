#!/usr/bin/python
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin of the same name; nothing here runs on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: remote_things
short_description: Make what is neither a host nor an object of the cluster as it is wanted
version_added: "0.4.0"
description:
  - Compares remote things (the containers that backups go to) with what the inventory wants of them, and
    takes the steps between the two. Which variables say what is wanted, each kind knows.
  - Everything is compared before anything is changed. Many things are worked on at the same time; one that
    fails ends no other, and all that failed are named in the end.
  - A step after which something is gone, somebody has lost access, or that nobody can undo, needs consent.
    It is given with C(ironspan_allow_destructive), or without a plan by the argument of the run that names
    the thing (C(ironspan_lock) for a container whose policy is to be locked).
  - With a plan (C(ironspan_plan)) the things come from the plan. One that was changed since is left alone
    and named; a run that was killed is finished by the same plan.
  - It is an action plugin and runs on the controller only. Containers need azure-identity and
    azure-mgmt-storage there (C(pip install 'ironspan[azure]')).
author:
  - The ironspan developers
attributes:
  check_mode:
    support: full
    description: Everything is asked, nothing is changed.
  diff_mode:
    support: full
    description: Shows every thing that is not as wanted, as it is and as it will be.
options:
  kinds:
    description: The kinds to work on, one after the other.
    type: list
    elements: str
    default: []
  mode:
    description: V(plan) keeps the things of the operation that is planned for M(ironspan.hybrid.write_plan).
    type: str
    choices: [apply, plan]
    default: apply
  held:
    description: Things that must not be touched in this run; they count as failed, all others are worked on.
    type: list
    elements: str
    default: []
  held_because:
    description: Why they must not be touched.
    type: str
    default: ""
  only:
    description: Names of the things that it is about. Without it, all.
    type: list
    elements: str
  without:
    description: Names of things that it is not about.
    type: list
    elements: str
    default: []
  on_failure:
    description:
      - V(continue) does not fail; C(brought) has the things that are as they are wanted, and
        M(ironspan.hybrid.node_drain) with C(state=reported) tells the others in the end.
    type: str
    choices: [fail, continue]
    default: fail
"""

EXAMPLES = r"""
- name: Containers for backups
  ironspan.hybrid.remote_things:
    kinds: [backup_container]
  run_once: true
"""

RETURN = r"""
changes:
  description: The steps that were taken, or would be in check mode.
  returned: success
  type: list
  elements: str
things:
  description:
    - Every thing with what is wanted, what was found, its steps and its notes. The key C(more) has what
      programs need, such as the roles that have to exist for a container.
  returned: success
  type: list
  elements: dict
brought:
  description: Names of the things that did not fail, and were not held.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Refuse to run: the action plugin does the work."""
    module = AnsibleModule(
        argument_spec={
            "kinds": {"type": "list", "elements": "str", "default": []},
            "mode": {"type": "str", "choices": ["apply", "plan"], "default": "apply"},
            "held": {"type": "list", "elements": "str", "default": []},
            "held_because": {"type": "str", "default": ""},
            "only": {"type": "list", "elements": "str"},
            "without": {"type": "list", "elements": "str", "default": []},
            "on_failure": {"type": "str", "choices": ["fail", "continue"], "default": "fail"},
        },
        supports_check_mode=True,
    )
    module.fail_json(msg="remote_things runs on the controller only, by its action plugin")


if __name__ == "__main__":
    main()
