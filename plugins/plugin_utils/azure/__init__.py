# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Azure's resource manager, as far as the estate and the store for backups need it."""
