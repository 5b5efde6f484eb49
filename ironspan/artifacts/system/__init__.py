# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Whole systems from Debian packages: the disk image of servers, and the ramdisk with Ironic's agent."""
