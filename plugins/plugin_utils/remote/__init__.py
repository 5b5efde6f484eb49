# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Things that are no hosts and no objects of the cluster: what is wanted, what is there, and the steps."""
