# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The templates of a role that render to documents."""

from __future__ import annotations

DESIRED = "desired.yml.j2"
"""What the layer wants on a host."""
RESET = "reset.yml.j2"
"""How the layer is taken off a host again."""
FITNESS = "fitness.yml.j2"
"""What the layer asks of a host before anything is changed on it."""
OBJECTS = "objects.yml.j2"
"""What the layer wants in the cluster."""
