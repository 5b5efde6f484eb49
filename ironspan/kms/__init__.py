# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The program ``ironspan-kms``: lets API servers wrap their keys with a key of Azure Key Vault (KMS v2)."""
