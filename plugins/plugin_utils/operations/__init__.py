# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Changes of a running site, one module each: what has to be done, in which order, and what forbids it."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils import catalogue
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.kinds import Operation

SITE = "site"
"""What site.yml does: hosts are made to match their documents, and there are no steps beside that."""

OPERATIONS: dict[str, Operation] = {name: catalogue.OPERATIONS[name] for name in catalogue.PLANNED}
"""Operations that can be planned; the module of the name works out the steps of one that has some."""
