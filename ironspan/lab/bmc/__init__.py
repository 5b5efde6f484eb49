# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""BMCs of the lab: servers of sushy-tools' emulator behind a front with accounts, certificates and faults."""
