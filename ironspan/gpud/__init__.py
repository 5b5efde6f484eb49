# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The agent of GPU hosts: how GPUs are, as events, a condition of the Node, and metrics.

NVML is asked by a process of its own (``worker``), which ``watch`` ends when it hangs. ``checks`` are
functions over what it read, ``events`` decides what that means, ``store`` keeps it, ``node`` writes it to the
API server. ``preflight`` tests the GPUs before pods get them, as a program of its own.
"""
