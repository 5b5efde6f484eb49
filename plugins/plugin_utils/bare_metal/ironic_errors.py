# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What the errors of Ironic's conductor mean for whoever has to fix them."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.problems import quoted

_LONGEST, _SHOWN = 4096, 300
_MEANINGS: t.Final[dict[str, str]] = {
    r"\bfuser\b": "the agent's ramdisk lacks fuser: build it with psmisc",
    r"no such file or directory: '?qemu-img": "the agent's ramdisk lacks qemu-img: build it with qemu-utils",
    r"ipa-rescue-config|out of date agent ramdisk": "the agent's ramdisk lacks the files that rescue needs",
    r"\b401\b|unauthori[sz]ed|AccessError|authentication": "the BMC refused the credentials",
    r"timeout reached while waiting for callback|callback timeout": (
        "the agent never called back: look at the serial console, the boot device and the ramdisk's network"
    ),
    r"no storage pool|virtual media|InsertMedia|vmedia": "the BMC did not take the virtual medium",
    r"checksum|image.*(not found|404)|ImageDownloadFailed": "the image is not there, or has another digest",
    r"no space left|disk.*full": "a folder of images is full",
    r"no suitable device|DeviceNotFound|root device hints": "no disk fits the hints for the root disk",
    r"certificate verify failed|SSLError": "a certificate, of the BMC or of Ironic, is not trusted",
    r"ConnectionError|connection refused|max retries|unreachable|timed out": "the BMC does not answer",
}
"""What is in the error to what it means; the first that is there counts."""


def explained(error: str | None) -> str:
    """Return an error for the end of a sentence: what it means and what was said; "" when there is none.

    Args:
        error: the conductor's own words.
    """
    if not error:
        return ""
    whole = " ".join(error[:_LONGEST].split())
    said = quoted(whole, _SHOWN)
    meaning = next((_MEANINGS[one] for one in _MEANINGS if re.search(one, whole, re.IGNORECASE)), "")
    return f": {meaning} (Ironic says: {said})" if meaning else f": {said}"
