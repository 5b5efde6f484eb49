# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Azure: Blob storage as a store, Key Vault for keys, and the identity that opens both."""
