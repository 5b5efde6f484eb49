# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The site's certificate authorities, their encrypted store, and the certificates signed from it."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.errors import PkiError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.keys import generate_key_file
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.store import Store, open_store

__all__ = ["PkiError", "Store", "generate_key_file", "open_store"]
