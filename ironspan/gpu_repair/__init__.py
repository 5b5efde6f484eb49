# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The repair of GPU nodes: cordon, drain, reset or reboot, test again, back to work or to a person."""
