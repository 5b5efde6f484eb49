#!/usr/bin/python
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin of the same name; nothing here runs on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: awx_guard
short_description: Refuse a workflow that its launcher approved
version_added: "0.3.0"
description:
  - Asks the controller of jobs (AWX, Ascender, automation controller) who launched the workflow that this
    job is part of, and who gave its approvals. Fails where that is one person, or is not known.
  - Host and token come from the environment, E(IRONSPAN_CONTROLLER_HOST) and E(IRONSPAN_CONTROLLER_TOKEN),
    which a credential of the job sets. See docs/awx.md.
  - It is an action plugin and runs on the controller only.
author:
  - The ironspan developers
attributes:
  check_mode:
    support: full
    description: There is nothing to change.
  diff_mode:
    support: none
    description: There is nothing to change.
options:
  workflow_job:
    description: Number of the workflow job, as the controller says it in C(awx_workflow_job_id).
    type: int
    required: true
"""

EXAMPLES = r"""
- name: Compare who launched the workflow with who approved it
  ironspan.hybrid.awx_guard:
    workflow_job: "{{ awx_workflow_job_id }}"
"""

RETURN = r"""
msg:
  description: Who launched and approved, where it fails.
  returned: failure
  type: str
"""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Refuse to run: the action plugin does the work."""
    module = AnsibleModule(
        argument_spec={"workflow_job": {"type": "int", "required": True}},
        supports_check_mode=True,
    )
    module.fail_json(msg="ironspan.hybrid.awx_guard runs on the controller; its action plugin was not found")


if __name__ == "__main__":
    main()
