# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Retention policies and legal holds of containers; nothing here speaks to a store.

After "Store business-critical blob data with immutable storage" (Azure Storage documentation), policies of
containers.
"""

from __future__ import annotations

import secrets
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from ironspan.lab.azure.operations import Effect

Append = Literal["none", "append", "all"]
DAY_S = 86400
MAXIMUM_DAYS = 146_000
MAXIMUM_EXTENSIONS = 5
_RETAINED = "BlobImmutableDueToPolicy"
_HELD = "BlobImmutableDueToLegalHold"
#: What changes a blob that is there.
_CHANGING = frozenset({"put", "block", "append", "change", "delete"})


class PolicyError(Exception):
    """The resource manager refuses a change of policy: an HTTP status, Azure's error code, a message."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


@dataclass(frozen=True)
class Blob:
    """What a policy has to know of a blob that is there; times in Unix seconds."""

    created: float
    modified: float
    appendable: bool


@dataclass(frozen=True)
class Policy:
    """A container's time-based retention policy."""

    days: int
    append: Append = "none"
    locked: bool = False
    extensions: int = 0
    etag: str = field(default_factory=lambda: secrets.token_hex(8))

    def until(self, blob: Blob) -> float:
        """When a blob's retention ends (Unix seconds).

        It counts from creation, but from the last append for an append blob that may still grow.
        """
        grows = blob.appendable and self.append != "none"
        return (blob.modified if grows else blob.created) + self.days * DAY_S


@dataclass
class Container:
    """The policies of one container."""

    policy: Policy | None = None
    holds: list[str] = field(default_factory=list)

    @property
    def mutable(self) -> bool:
        """Whether everything may be done to its blobs."""
        return self.policy is None and not self.holds

    def refusal(self, effect: Effect, blob: Blob | None, now: float) -> str | None:
        """Return Azure's error code when a blob may not be changed so, None when it may.

        Args:
            effect: What the request does.
            blob: The blob as it is there, None when it is not.
            now: Unix seconds.
        """
        if blob is None or effect not in _CHANGING or self.mutable:
            return None
        if self.policy is not None:
            if effect == "append" and self.policy.append != "none":
                return None
            if effect == "block" and self.policy.append == "all":
                return None
            expired = now >= self.policy.until(blob)
            if not expired or effect != "delete":
                return _RETAINED
        return _HELD if self.holds else None

    def put(self, days: int, append: Append, match: str | None) -> Policy:
        """Create the policy or change one that is not locked.

        Raises:
            PolicyError: It is locked, `match` is another version's ETag, or the days are out of range.
        """
        _check_days(days)
        if self.policy is not None:
            self._match(match, required=False)
            if self.policy.locked:
                raise PolicyError(
                    409,
                    "ContainerImmutabilityPolicyLocked",
                    "The policy is locked; it can only be extended.",
                )
        self.policy = Policy(days, append)
        return self.policy

    def lock(self, match: str | None) -> Policy:
        """Lock the policy: from now on it can only be extended. Raises PolicyError."""
        policy = self._match(match, required=True)
        self.policy = replace(policy, locked=True, etag=secrets.token_hex(8))
        return self.policy

    def extend(self, days: int, match: str | None) -> Policy:
        """Extend a locked policy, at most five times. Raises PolicyError."""
        policy = self._match(match, required=True)
        _check_days(days)
        if not policy.locked:
            raise PolicyError(409, "ImmutabilityPolicyUnlocked", "Only a locked policy can be extended.")
        if days < policy.days:
            raise PolicyError(409, "ImmutabilityPolicyShortened", "A locked policy cannot be shortened.")
        if policy.extensions >= MAXIMUM_EXTENSIONS:
            raise PolicyError(
                409, "ImmutabilityPolicyExtensions", "The policy has been extended five times already."
            )
        self.policy = replace(policy, days=days, extensions=policy.extensions + 1, etag=secrets.token_hex(8))
        return self.policy

    def remove(self, match: str | None) -> None:
        """Remove a policy that is not locked. Raises PolicyError."""
        if self._match(match, required=True).locked:
            raise PolicyError(409, "ContainerImmutabilityPolicyLocked", "A locked policy cannot be deleted.")
        self.policy = None

    def _match(self, match: str | None, *, required: bool) -> Policy:
        if self.policy is None:
            raise PolicyError(404, "ContainerImmutabilityPolicyNotFound", "The container has no policy.")
        if match is None and required:
            raise PolicyError(400, "MissingRequiredHeader", "If-Match must name the policy's ETag.")
        if match not in (None, "*") and str(match).strip('"') != self.policy.etag:
            raise PolicyError(412, "PreconditionFailed", "The policy has changed: its ETag is another one.")
        return self.policy

    def as_dict(self) -> dict[str, Any]:
        """The container's policies as JSON keeps them."""
        return asdict(self)

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Container:
        """The inverse of `as_dict`."""
        policy = document.get("policy")
        return cls(Policy(**policy) if policy else None, list(document.get("holds", [])))


def _check_days(days: int) -> None:
    if not 1 <= days <= MAXIMUM_DAYS:
        raise PolicyError(400, "InvalidParameter", f"A period is 1 to {MAXIMUM_DAYS} days, not {days}.")
