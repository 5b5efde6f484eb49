# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
