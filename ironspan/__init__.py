# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The ironspan command line, lab and artefact mirror; cluster logic is in the collection ironspan.hybrid."""

from __future__ import annotations

__version__ = "0.1.0"
