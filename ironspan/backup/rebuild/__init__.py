# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""From backups to a database: rebuild one of any point, and prove that one can be rebuilt."""
