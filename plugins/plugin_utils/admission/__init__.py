# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What pods, namespaces and services the cluster takes: from a typed policy file to admission policies."""
