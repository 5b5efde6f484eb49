# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A small client of etcd's gRPC API: what programs on hosts need of it."""
