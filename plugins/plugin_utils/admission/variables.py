# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Names of the site's variables for admission that are read in more than one place."""

from __future__ import annotations

FILE, FROM_FILES = "admission_policy_file", "admission_from_files"
ADDRESSES, PROGRAMS = "admission_service_addresses", "admission_load_balancers"
