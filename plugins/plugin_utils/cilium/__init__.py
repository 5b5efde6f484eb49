# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Cilium as the pod network: its manifests, its policies, and whether they are in force."""

from __future__ import annotations
