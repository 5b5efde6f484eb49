# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a TPM says of itself and of what was booted, judged on the controller.

Numbers and structures are those of the TPM 2.0 Library Specification of the Trusted Computing Group, part 2.
Whatever the bytes are, what comes out is a value or an AttestationError.
"""
