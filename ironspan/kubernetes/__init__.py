# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A cluster, as programs on hosts and in pods use it."""
