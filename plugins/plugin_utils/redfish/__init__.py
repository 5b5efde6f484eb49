# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Management controllers of servers (BMC), spoken to directly by Redfish."""
