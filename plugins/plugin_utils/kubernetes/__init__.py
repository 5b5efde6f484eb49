# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Kubernetes without Ansible: client, cordon, drain, rollouts, objects; programs on hosts pack it too."""
