# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Servers that QEMU plays: UEFI with Secure Boot, a disk, a serial console in a file, and a BMC each."""
