# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A stand-in of a controller's API v2 (AWX 24.6.1), as far as configuration, launches and approvals go.

Made after the source of that version: fields and their checks, words of refusals, pages, filters, named URLs,
related links, surveys, roles, approvals. A launched job really runs ansible-runner. What it does not have it
answers with 404, so that nobody takes silence for consent.
"""
