# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What is done about what GPUs report. Without Ansible and the site, so that programs can pack it."""
