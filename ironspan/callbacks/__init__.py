# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Callback plugins of Ansible that need the pip package; ``ansible.cfg`` names this folder."""
