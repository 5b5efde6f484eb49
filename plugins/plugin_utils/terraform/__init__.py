# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Terraform beside ironspan: what it made is read, and what ironspan made is written down for it."""
