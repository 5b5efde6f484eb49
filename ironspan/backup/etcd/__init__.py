# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A small client of etcd's gRPC API: what the backup, the restore and the care of etcd need of it."""
