# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Secrets, encrypted in etcd: what API servers have loaded, what is stored, rewriting it."""
