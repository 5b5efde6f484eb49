# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Azure Blob storage as a store of backups."""
