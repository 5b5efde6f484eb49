# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Which GPU, driver, kernel modules, CUDA, kernel and gVisor go together."""
