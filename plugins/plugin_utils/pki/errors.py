# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The one error that callers of the PKI see."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.errors import ActionableError


class PkiError(ActionableError):
    """Something about the store, its key or a certificate request is not acceptable; in sentences."""
