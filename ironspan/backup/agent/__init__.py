# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The agent: one of a cluster's hosts writes snapshots and the log, the others stand by."""
