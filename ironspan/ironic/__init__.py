# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Ironic as one program on a host: API and conductor in one process, its database, its passwords."""
