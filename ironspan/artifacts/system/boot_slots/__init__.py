# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The program of a disk with two roots: which one runs, and whether it is good (docs/images.md).

It is packed into images, where it runs with Python alone: it imports the standard library and itself.
"""
