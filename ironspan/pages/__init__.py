# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Pages that people look at: one look, the parts that they are made of, and the pages themselves.

Everything here is pure: data in, text out. Nothing asks a host, a file or a clock.
"""
