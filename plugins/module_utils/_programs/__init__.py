# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Programs that roles install on hosts as single files: standard library only, settings in a file beside."""
