# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Backups of etcd: what runs on etcd hosts in its own environment. Imports nothing else of the project."""
