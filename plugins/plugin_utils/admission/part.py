# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a site says of admission. Every process of a run reads it, so what makes objects is imported late."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.variables import (
    ADDRESSES,
    FILE,
    FROM_FILES,
    PROGRAMS,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Site

if t.TYPE_CHECKING:
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.declared import Admission
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.objects import Object


@dataclasses.dataclass(frozen=True, slots=True)
class AdmissionPart:
    """The site's part of this domain.

    Args:
        file: what the policy file says, None where the site has none.
        service_addresses: what the policies that every cluster has let services take, as networks.
        load_balancers: users that may give out addresses of load balancers.
    """

    DOMAIN: t.ClassVar[str] = "admission"

    file: Admission | None
    service_addresses: tuple[str, ...]
    load_balancers: tuple[str, ...]

    def objects(self) -> list[Object]:
        """Return the policies that every cluster has, and those of the policy file."""
        from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.always import KEEPERS, always

        keepers = self.file.policy.keepers if self.file else KEEPERS
        return [
            *always(
                keepers,
                self.service_addresses,
                self.load_balancers,
                others=self.file is not None,
            ),
            *(self.file.objects() if self.file else []),
        ]


def declared(draft: Draft) -> AdmissionPart:
    """Return the part of a site.

    Args:
        draft: one that passed every check.
    """
    file = draft.site_file(FILE)
    admission = None
    if file is not None:
        # Only sites with such a file pay for what reads it.
        from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.declared import Admission
        from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.read import read_policy

        admission = Admission(read_policy(file), draft.site_value(FROM_FILES))
    value = draft.site_value
    return AdmissionPart(admission, tuple(value(ADDRESSES) or ()), tuple(value(PROGRAMS) or ()))


def of_file(site: Site) -> Admission | None:
    """Return what the policy file of a site says, None where it has none."""
    part = site.part(AdmissionPart)
    return part.file if part else None


def objects_of(site: Site) -> list[Object]:
    """Return all admission policies of a site, see ``AdmissionPart.objects``."""
    part = site.part(AdmissionPart)
    return part.objects() if part else []
