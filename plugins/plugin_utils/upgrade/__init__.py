# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Upgrades of a running cluster: which are possible, what stands in the way, whether a step went well."""
