# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A container of Azure Blob storage as a store.

Every write is conditional, so two writers that both believe to be the only one cannot damage each other's
work: objects are made with If-None-Match, appends name the position at which they land. No request is
repeated by the SDK: what is safe to repeat is repeated here, and an append whose outcome is unknown is told
apart from one that another writer made.
"""

from __future__ import annotations

import contextlib
import typing as t
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from urllib.parse import urlsplit

from azure.core import MatchConditions
from azure.core.exceptions import AzureError, ServiceRequestError
from azure.storage.blob import BlobBlock, BlobClient, BlobLeaseClient, BlobServiceClient

from ironspan.azure.failures import Place, code_of, explain, outcome_unknown
from ironspan.azure.identity import credential, refuse_secrets
from ironspan.azure.private_endpoint import Endpoint, insist_on_private, refuse_public, transport
from ironspan.azure.transfer import DELAYS, PIECE, in_order, numbered, ours, pieces, repeat
from ironspan.backup.azure.lease import BlobLease
from ironspan.backup.errors import PositionConflict
from ironspan.backup.store import APPEND_MAX, LEASE_SECONDS, Item
from ironspan.program.errors import AlreadyThere, LeaseLost, NotThere, ProgramError, ServiceError
from ironspan.program.leader import Lease

PAGE = 5000
"""Objects of one answer to a listing: as many as the service gives."""
_WRITE = "ironspan_write"
"""Metadata of an object that names the attempt that made it."""


class BlobStore:
    """A store in a container of Azure Blob storage.

    Args:
        service: a client of the account, whose retry policy does nothing.
        container: name of the container.
        prefix: what every object's name begins with in the container.
        private: insist that the account has private addresses.
        delays: seconds between attempts at one request.
    """

    def __init__(
        self,
        service: BlobServiceClient,
        container: str,
        prefix: str = "",
        private: bool = True,
        delays: tuple[float, ...] = DELAYS,
    ) -> None:
        self._endpoint = Endpoint.of(service.url) if private else None
        self._container = service.get_container_client(container)
        self._place = Place(str(service.account_name or service.primary_hostname), container)
        self._prefix = prefix
        self._delays = delays
        self._unsettled: set[tuple[str, int]] = set()

    @property
    def name(self) -> str:
        """What the store is called in messages."""
        return f"azure:{self._place}/{self._prefix}".rstrip("/")

    def put(self, name: str, data: Iterable[bytes]) -> None:
        """Make an object of these bytes, whole or not at all. Raises AlreadyThere; nothing is replaced."""
        client, attempt = self._blob(name), uuid.uuid4().hex
        parts = pieces(data)
        first = next(parts)
        second = next(parts, None)
        if second is None:
            self._create(name, attempt, lambda: self._upload(client, first, attempt))
            self._insist_on_size(name, len(first))
            return
        blocks: list[BlobBlock] = []
        total = 0

        def stage(numbered: tuple[str, bytes]) -> tuple[str, int]:
            block, piece = numbered
            self._ask(name, "write", lambda: client.stage_block(block, piece, validate_content=True))
            return block, len(piece)

        for block, length in in_order(stage, numbered((first, second), parts)):
            blocks.append(BlobBlock(block_id=block))
            total += length
        self._create(
            name,
            attempt,
            lambda: client.commit_block_list(
                blocks, metadata={_WRITE: attempt}, match_condition=MatchConditions.IfMissing
            ),
        )
        self._insist_on_size(name, total)

    def create_append(self, name: str) -> None:
        """Make an empty object that ``append`` extends. Raises AlreadyThere."""
        client, attempt = self._blob(name), uuid.uuid4().hex
        self._create(
            name,
            attempt,
            lambda: client.create_append_blob(
                metadata={_WRITE: attempt}, match_condition=MatchConditions.IfMissing
            ),
        )

    def append(self, name: str, data: bytes, position: int) -> int:
        """Extend an object at byte ``position`` and return its new length.

        It is not repeated here, so that the caller can write to its spool meanwhile. After an unknown outcome
        the same call again tells whether the bytes landed.
        """
        if not 0 < len(data) <= APPEND_MAX:
            raise ServiceError(f"{name}: an append has 1 to {APPEND_MAX} bytes, not {len(data)}.")
        try:
            answer = self._blob(name).append_block(data, appendpos_condition=position, validate_content=True)
        except AzureError as error:
            if code_of(error) == "AppendPositionConditionNotMet":
                return self._settle(name, data, position)
            if code_of(error) == "InvalidBlobType":
                raise ServiceError(f"{self._at(name)} is no object that can be extended.") from None
            if outcome_unknown(error):
                self._unsettled.add((name, position))
            raise self._explain(error, name, "write") from None
        self._unsettled.discard((name, position))
        landed = int(str(answer["blob_append_offset"]))
        if landed != position:
            raise PositionConflict(
                f"{self._at(name)}: the append landed at {landed}, not {position}.", landed
            )
        return position + len(data)

    def size(self, name: str) -> int:
        """Return an object's length in bytes. Raises NotThere."""
        return int(self._properties(name).size)

    def read(self, name: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        """Yield an object's bytes, all that there are beyond ``offset`` or ``length`` of them."""
        # Its answer says how long the object is, so that most objects take this one request.
        first, end = self._part(name, offset, PIECE if length is None else min(PIECE, length))
        if first:
            yield first
        if length is not None:
            end = min(end, offset + length)
        ranges = ((start, min(PIECE, end - start)) for start in range(offset + len(first), end, PIECE))
        yield from in_order(lambda part: self._range(name, *part), ranges)

    def list(self, prefix: str) -> Iterator[Item]:
        """Yield what begins with ``prefix``, sorted by name."""
        token: str | None = None
        while True:
            items, token = self._page(prefix, token)
            yield from items
            if not token:
                return

    def delete(self, name: str) -> None:
        """Delete an object. Raises NotThere, and Forbidden where the identity or a policy says so."""
        self._ask(name, "delete", self._blob(name).delete_blob)

    def acquire(self, name: str, seconds: int, holder: str) -> Lease:
        """Take the lease of an object, which is made if it is missing. Raises LeaseLost: another holds it."""
        if not LEASE_SECONDS[0] <= seconds <= LEASE_SECONDS[1]:
            raise ServiceError(
                f"A lease lasts {LEASE_SECONDS[0]} to {LEASE_SECONDS[1]} seconds, not {seconds}."
            )
        held = BlobLeaseClient(self._blob(name), lease_id=str(uuid.uuid4()))
        try:
            self._ask(name, "write", lambda: held.acquire(lease_duration=seconds))
        except NotThere:
            with contextlib.suppress(AlreadyThere):
                self.put(name, [])
            self._ask(name, "write", lambda: held.acquire(lease_duration=seconds))
        except LeaseLost as error:
            raise LeaseLost(f"{holder} did not get the lease: {error.message}") from None
        return BlobLease(lambda request: self._ask(name, "write", request), name, held)

    def retains(self) -> bool:
        """Say whether the container has a time-based retention policy."""
        found = self._ask("", "read", self._container.get_container_properties)
        return bool(found.has_immutability_policy)

    def _blob(self, name: str) -> BlobClient:
        return self._container.get_blob_client(self._prefix + name)

    def _at(self, name: str) -> Place:
        return Place(self._place.account, self._place.container, self._prefix + name)

    def _explain(self, error: AzureError, name: str, need: str) -> ProgramError:
        if self._endpoint and isinstance(error, ServiceRequestError):
            try:
                insist_on_private(self._endpoint)
            except ServiceError as reason:
                return reason
        return explain(error, self._at(name), need)

    def _ask[Made](self, name: str, need: str, request: Callable[[], Made]) -> Made:
        """Make a request that may be repeated, and say in our words what went wrong."""
        return repeat(
            request,
            lambda error: self._explain(error, name, need) if isinstance(error, AzureError) else ours(error),
            delays=self._delays,
        )

    def _upload(self, client: BlobClient, data: bytes, attempt: str) -> None:
        client.upload_blob(
            data, length=len(data), metadata={_WRITE: attempt}, overwrite=False, validate_content=True
        )

    def _create(self, name: str, attempt: str, request: Callable[[], object]) -> None:
        """Make an object; one that an attempt of ours made whose answer was lost is not another's."""
        try:
            self._ask(name, "write", request)
        except AlreadyThere:
            metadata = self._properties(name).metadata or {}
            if metadata.get(_WRITE) != attempt:
                raise

    def _insist_on_size(self, name: str, size: int) -> None:
        try:
            there = self.size(name)
        except NotThere:
            there = -1
        if there != size:
            raise ServiceError(
                f"{self._at(name)}: the store confirmed the object, and does not have its {size} bytes.",
                "Something between this host and the account alters requests; look for a proxy.",
                retryable=True,
            )

    def _settle(self, name: str, data: bytes, position: int) -> int:
        """Say whether the bytes that were refused landed before, by the answer that was lost."""
        actual = self.size(name)
        mine = (name, position) in self._unsettled and actual >= position + len(data)
        if mine and self._range(name, position, len(data)) == data:
            self._unsettled.discard((name, position))
            return position + len(data)
        raise PositionConflict(f"{self._at(name)} has {actual} bytes, not {position}.", actual)

    def _properties(self, name: str) -> t.Any:
        return self._ask(name, "read", self._blob(name).get_blob_properties)

    def _range(self, name: str, offset: int, length: int) -> bytes:
        data, size = self._part(name, offset, length)
        if len(data) != length:
            raise ServiceError(f"{self._at(name)} has only {size} bytes now.", retryable=True)
        return data

    def _part(self, name: str, offset: int, length: int) -> tuple[bytes, int]:
        """Return up to ``length`` bytes from ``offset`` on, and the object's length; one request."""
        if length == 0:
            return b"", self.size(name)

        def request() -> tuple[bytes, int]:
            try:
                answer = self._blob(name).download_blob(offset, length, max_concurrency=1)
            except AzureError as error:
                if code_of(error) == "InvalidRange":
                    # It ends before the offset.
                    return b"", 0
                raise
            size = int(str(answer.properties.content_range).rpartition("/")[2])
            data = answer.readall()
            if len(data) != min(length, size - offset):
                raise ServiceError(
                    f"{self._at(name)}: {len(data)} of {length} bytes at {offset} came.", retryable=True
                )
            return data, size

        return self._ask(name, "read", request)

    def _page(self, prefix: str, token: str | None) -> tuple[Iterable[Item], str | None]:
        def request() -> tuple[Iterable[Item], str | None]:
            blobs = self._container.list_blobs(self._prefix + prefix, results_per_page=PAGE)
            pages: t.Any = blobs.by_page(token)
            items = [
                Item(
                    blob.name.removeprefix(self._prefix),
                    int(blob.size),
                    blob.last_modified.timestamp(),
                    blob.creation_time.timestamp(),
                )
                for blob in next(pages, ())
            ]
            return items, pages.continuation_token

        return self._ask(prefix, "read", request)


def open_azure(settings: Mapping[str, t.Any]) -> BlobStore:
    """Open a container as a store.

    Args:
        settings: ``account_url``, ``container``, ``prefix``, ``credential`` (see ``identity.credential``),
            ``ca`` (file; "" for the system's) and ``private``: refuse an account with a public address.

    Raises:
        ProgramError: the settings hold a key, or do not fit this host.
        ServiceError: the account's name has a public address.
    """
    refuse_secrets(settings)
    url, ca, private = settings["account_url"], settings.get("ca", ""), settings.get("private", True)
    if urlsplit(url).scheme != "https":
        raise ProgramError(f"{url} is not https.", "Tokens are sent encrypted only; write https://.")
    if private:
        refuse_public(Endpoint.of(url))
    service = BlobServiceClient(
        url,
        credential=credential(settings["credential"], ca),
        transport=transport(private=private, ca=ca),
        retry_total=0,
        max_single_get_size=PIECE,
        max_chunk_get_size=PIECE,
        max_block_size=PIECE,
    )
    return BlobStore(service, settings["container"], settings.get("prefix", ""), private)
