# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Everything that reads bytes which others wrote: a store, a host, a registry, a cluster, a person's file.

Where a reader checks a digest that anybody can compute, it is computed again after the change, so that
the code behind it is reached.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import json
import struct
import tarfile
import tempfile
import time
import typing as t
from pathlib import Path

import h2.config
import h2.connection
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.journal import History, parse_journal
from ansible_collections.ironspan.hybrid.plugins.module_utils._programs import audit_watch
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import _unpack
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import ResourceError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.access import sealed
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.attestation import keys, quote
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.attestation.wire import AttestationError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal import write
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.compare import compare
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.index import Index
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.inventory import (
    Source,
    read_expected,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.measured import read_inspection
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.encryption.stored import key_id
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.errors import PlanError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import sealing
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.errors import PkiError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.signing_requests import checked_request
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan import content as plan_content
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ironspan.artifacts import image, registry
from ironspan.artifacts.lock import Image
from ironspan.backup import frame, manifest, records
from ironspan.backup.agent.database import DatabaseReader
from ironspan.backup.log.group import Gap, Grouper
from ironspan.backup.proof import UNSIGNED, Proof, canonical
from ironspan.backup.rebuild.boltfile import BoltFile
from ironspan.backup.recovery import stamp_of
from ironspan.cli import plan_page, plan_text
from ironspan.cli.outcome import CommandError
from ironspan.etcd import rpc_pb2 as rpc
from ironspan.etcd.errors import EtcdError
from ironspan.etcd.stream import Stream
from ironspan.kms import handover
from ironspan.program.errors import ProgramError
from tests.support import racks
from tests.support.backup_log import CLUSTER, NAMES, PlainKeys, add_log, add_snapshot, revision
from tests.support.fuzzing import Target
from tests.support.memory_store import MemoryStore, Thing
from tests.support.small_database import database
from tests.unit.hardening.test_verify_image import NAMES as VERIFIER
from tests.unit.plan import samples

_SEGMENT = NAMES.log(1, 11, 1)
_KEY = b"k" * 32


# -- backups -----------------------------------------------------------------------------------------


def _store_with(name: str, data: bytes) -> MemoryStore:
    store = MemoryStore(lambda: 0.0)
    store.things[name] = Thing(bytearray(data), True, 0.0, 0.0)
    return store


def _sample_log() -> MemoryStore:
    store = MemoryStore(lambda: 0.0)
    add_log(store, PlainKeys(), [[revision(number)] for number in range(11, 15)], after=10)
    return store


def _segment(data: bytes) -> None:
    store = _store_with(_SEGMENT, data)
    for proof in (NAMES.proof, UNSIGNED):
        with contextlib.suppress(ProgramError):
            frame.first_header(store, _SEGMENT, proof)
        try:
            for found in frame.read_frames(store, _SEGMENT, proof.schema):
                hash(found.header)
        except (frame.Torn, ProgramError):
            pass


def _records(data: bytes) -> None:
    for batch in (data, _zipped(data)):
        records.decode(batch)


def _zipped(data: bytes) -> bytes:
    import zlib

    return zlib.compress(data, 1)


class _Believing(Proof):
    """Takes every signature for a good one, so that what is behind it is reached."""

    def verifies(
        self, part: str, version: str, signature: bytes, kind: str, name: str, content: bytes
    ) -> bool:
        return True


def _small(kind: type[t.Any]) -> t.Callable[[bytes], object]:
    def read(data: bytes) -> object:
        try:
            fields = json.loads(data)
            signature = fields.pop("signature", None)
            fields.pop("digest", None)
            fields["digest"] = hashlib.sha256(canonical(fields)).hexdigest()
            data = json.dumps({**fields, "signature": signature}).encode()
        except (ValueError, AttributeError, TypeError, RecursionError):
            pass
        return manifest.load(kind, data, "name", _Believing({}))

    return read


def _bolt(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "db"
        path.write_bytes(data)
        with BoltFile(path) as file:
            for bucket in (b"key", b"meta"):
                for _ in file.rows(bucket):
                    pass
                file.last_key(bucket)


def _database(data: bytes) -> None:
    reader = DatabaseReader()
    for start in range(0, len(data), 10_000):
        reader.feed(data[start : start + 10_000])
    reader.revision()


# -- etcd --------------------------------------------------------------------------------------------


class _Wire:
    """A connection that gives what it was made with, and takes everything."""

    scheme, authority = "http", "member"

    def __init__(self, data: bytes) -> None:
        self._pieces = [data[start : start + 700] for start in range(0, len(data), 700)]

    def open(self) -> None: ...

    def write(self, data: bytes) -> None: ...

    def pause(self, seconds: float) -> None: ...

    def wait(self) -> bool:
        return True

    def read(self, size: int) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""


def _stream(data: bytes) -> None:
    stream = Stream("http://127.0.0.1:1", None, "a.Service/Method")
    stream._connection.close()
    stream._connection = t.cast("t.Any", _Wire(data))
    while True:
        for message in stream.receive():
            _watch(message)


def _answers(*messages: bytes) -> bytes:
    server = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
    client = h2.connection.H2Connection()
    client.initiate_connection()
    client.send_headers(1, [(":method", "POST"), (":scheme", "http"), (":path", "/a"), (":authority", "b")])
    server.initiate_connection()
    server.receive_data(client.data_to_send())
    server.send_headers(1, [(":status", "200"), ("content-type", "application/grpc")])
    for message in messages:
        server.send_data(1, struct.pack(">BI", 0, len(message)) + message)
    server.send_headers(1, [("grpc-status", "11"), ("grpc-message", "compacted")], end_stream=True)
    return server.data_to_send()


def _responses() -> list[bytes]:
    event = rpc.Event()
    event.kv.key, event.kv.value, event.kv.mod_revision = b"/registry/pods/a", b"v", 11
    response = rpc.WatchResponse(watch_id=1)
    response.header.revision, response.header.cluster_id = 11, int(CLUSTER, 16)
    response.events.append(event)
    return [response.SerializeToString(), rpc.WatchResponse(created=True).SerializeToString()]


def _watch(data: bytes) -> None:
    try:
        response = rpc.WatchResponse.FromString(data)
    except Exception as error:  # protobuf's own class for it differs between its two implementations
        if type(error).__name__ != "DecodeError":
            raise
        return
    grouper = Grouper(11)
    records.encode(grouper.feed(response, 1_800_000_000_000))


# -- the controller ----------------------------------------------------------------------------------


def _plan(data: bytes) -> None:
    try:
        content = json.loads(data)
        resealed = plan_content.seal(content).data
    except (ValueError, RecursionError, AttributeError, TypeError):
        resealed = data
    plan = plan_content.parse(resealed)
    for host in plan.hosts:
        plan.document_text(host)
    shown = plan_page.page(plan)
    assert "<b>" not in shown, "markup of the plan reaches the page"
    plan_text.shown(plan)


def _csr(data: bytes) -> None:
    for pem in (data, b"-----BEGIN CERTIFICATE REQUEST-----\n" + base64.encodebytes(data)
                + b"-----END CERTIFICATE REQUEST-----\n"):  # fmt: skip
        try:
            checked_request(pem, {"common_name": "az-1", "dns": ["az-1"], "ips": ["10.0.0.1"]})
        except PkiError:
            continue


def _request() -> x509.CertificateSigningRequest:
    key = ec.derive_private_key(7, ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "az-1")])
    names = x509.SubjectAlternativeName([x509.DNSName("az-1")])
    return x509.CertificateSigningRequestBuilder(name).add_extension(names, False).sign(key, hashes.SHA256())


def _manifest_of_an_image(data: bytes) -> None:
    for digest, size in image.references(data):
        assert "/" not in digest, "a digest leads out of its folder"
        assert size >= 0, "an image's size is negative"


class _Served:
    """A registry's answer."""

    def __init__(self, data: bytes) -> None:
        self.headers = {"Content-Type": "application/vnd.oci.image.index.v1+json"}
        self.read = io.BytesIO(data).read

    def __enter__(self) -> t.Self:
        return self

    def __exit__(self, *_: object) -> None: ...


def _registry(data: bytes) -> None:
    entry = Image("registry.example.com/team/app:1", "Apache-2.0", {}, "", {}, (), (), "", False)
    source = registry.Registry(entry, lambda request: _Served(data))
    source.resolve("amd64")
    source._anonymous_token('Bearer realm="https://x"')


def _unseal(data: bytes) -> None:
    sealing.unseal(_KEY, "name", data)


def _break_glass(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    sealed.keepers(text)


_BREAK_GLASS = {
    "format": "ironspan-break-glass-1", "user": "ironspan:break-glass:1", "expires": "2026-11-21T20:30:00Z",
    "work": 2, "salts": {"ada": "00" * 16, "bob": "11" * 16}, "sealed": "AAAA",
}  # fmt: skip


# -- hosts -------------------------------------------------------------------------------------------


def _audit(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "audit.log"
        log.write_bytes(b"")
        watch = audit_watch.Watch(str(log), folder)
        log.write_bytes(data)
        for use in watch.one_pass():
            assert "\n" not in use.text
        watch.save()


_AUDIT = {
    "auditID": "a", "stage": "ResponseComplete", "verb": "get", "requestURI": "/api/v1/secrets",
    "user": {"username": "kubernetes-admin", "groups": ["system:masters"],
             "extra": {"authentication.kubernetes.io/credential-id": ["X509SHA256=1"]}},
    "impersonatedUser": {"username": "x", "groups": ["system:masters"]},
    "sourceIPs": ["10.0.0.1"], "responseStatus": {"code": 200},
    "requestReceivedTimestamp": "2026-11-21T20:30:00.000000Z", "annotations": {},
}  # fmt: skip


def _tar(data: bytes) -> None:
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:*") as archive:
            for member in _unpack.select(archive, 0, []):
                assert not member.path.startswith("/")
                assert ".." not in member.path.split("/")
                if not member.target:
                    source = archive.extractfile(member.info)
                    assert source is not None
                    source.read(1 << 16)
    except _unpack.UNREADABLE:
        pass


def _archive(mode: t.Literal["w", "w:gz"]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:
        for name in ("bin/a", "bin/b"):
            info = tarfile.TarInfo(name)
            info.size = 3
            archive.addfile(info, io.BytesIO(b"abc"))
        link = tarfile.TarInfo("bin/c")
        link.type, link.linkname = tarfile.SYMTYPE, "a"
        archive.addfile(link)
    return buffer.getvalue()


def _journal(data: bytes) -> None:
    History(parse_journal(data)[0])


def _signatures(data: bytes) -> None:
    registry = VERIFIER["Registry"]("http://mirror", time.monotonic() + 60)
    registry.fetch = lambda path: data
    for payload, _ in registry.signatures("sha256:" + "a" * 64):
        VERIFIER["claims"](payload, "sha256:" + "a" * 64, ["*"])
    VERIFIER["claims"](data, "sha256:" + "a" * 64, ["*"])


def _handover(data: bytes) -> None:
    handover.open_sealed(b"wrapped", data, {_KEY: _KEY})


# -- servers in racks --------------------------------------------------------------------------------


def _racks(data: bytes) -> None:
    read_expected([Source("racks.yml", data)])


def _inspection(data: bytes) -> None:
    try:
        said = json.loads(data)
    except (ValueError, RecursionError):
        return
    expected = racks.server(0)
    compare(expected, [read_inspection("in band", said)], Index([expected]))


# -- TPMs --------------------------------------------------------------------------------------------


def _tpm(data: bytes) -> None:
    for read in (keys.attestation_key, keys.endorsement_key, quote.read_quote):
        with contextlib.suppress(AttestationError):
            read(data)


def _of_a_tpm() -> t.Iterator[bytes]:
    """Yield what swtpm answered: public keys and quotes."""
    for answer in json.loads((Path(__file__).parents[1] / "attestation" / "swtpm.json").read_text()).values():
        yield from (bytes.fromhex(answer[name]) for name in ("ak", "ek", "quote"))


def _targets() -> t.Iterator[Target]:
    log = _sample_log()
    segment = bytes(next(thing.data for name, thing in log.things.items() if name.endswith(".log")))
    store = MemoryStore(lambda: 0.0)
    add_snapshot(store, PlainKeys(), 10)
    small = {
        "epoch": (manifest.Epoch, manifest.Epoch(1, CLUSTER, 1, manifest.Restored("s", 1, 1, 1))),
        "verdict": (manifest.Verdict, manifest.Verdict(1, "s", False, 1, 1, 1.0, "h", ("f",))),
    }
    chain = (ProgramError,)
    yield Target("segment", _segment, (segment,), chain, ("backup/frame.py",))
    batch = records.encode([revision(11), records.LeaseGrant(1, 2), records.Progress(11, 1)])
    plain = records._unpack(batch)
    yield Target("records", _records, (batch, plain), chain, ("backup/records.py",))
    for name, (kind, value) in small.items():
        sample = manifest.dump(t.cast("t.Any", value), "name", NAMES.proof)
        yield Target(name, _small(kind), (sample,), chain, ("backup/manifest.py",))
    written = next(
        bytes(thing.data) for name, thing in store.things.items() if name.endswith("manifest.json")
    )
    yield Target("manifest", _small(manifest.Manifest), (written,), chain, ("backup/manifest.py",))
    files = (database(range(1, 40), page_bytes=512), database(range(1, 9), value_bytes=2000, page_bytes=512))
    yield Target("bolt", _bolt, files, chain, ("rebuild/bolt",))
    yield Target("database", _database, files, (EtcdError,), ("agent/database.py",))
    yield Target(
        "bundle", stamp_of, (b'{"format": "ironspan-recovery-1", "stamp": "x"}',), (), ("recovery.py",)
    )
    yield Target("watch", _watch, tuple(_responses()), (Gap,), ("backup/log/group.py", "backup/records.py"))
    yield Target("stream", _stream, (_answers(*_responses()),), (EtcdError, Gap), ("etcd/stream.py", "/h2/"))
    made = json.dumps(samples.plan().content).encode()
    yield Target("plan", _plan, (made,), (PlanError,), ("plan/content.py", "cli/plan_"))
    pem = _request().public_bytes(serialization.Encoding.PEM)
    der = _request().public_bytes(serialization.Encoding.DER)
    yield Target("csr", _csr, (pem, der), (), ("pki/signing_requests.py",))
    oci = json.dumps(
        {
            "config": {"digest": "sha256:" + "1" * 64, "size": 1},
            "layers": [{"digest": "sha256:" + "2" * 64, "size": 2}],
        }
    )
    yield Target("image", _manifest_of_an_image, (oci.encode(),), (ValueError,), ("artifacts/image.py",))
    index = {
        "manifests": [{"digest": "x", "platform": {"os": "linux", "architecture": "amd64"}}],
        "token": "t",
    }
    served = json.dumps(index).encode()
    yield Target("registry", _registry, (served,), (CommandError,), ("artifacts/registry.py",))
    secret = sealing.seal(_KEY, "name", b"secret")
    yield Target("sealed", _unseal, (secret,), (PkiError,), ("pki/sealing.py",))
    yield Target(
        "break_glass", _break_glass, (json.dumps(_BREAK_GLASS).encode(),), (PkiError,), ("access/sealed.py",)
    )
    line = json.dumps(_AUDIT).encode() + b"\n"
    yield Target("audit", _audit, (line, line * 2), (), ("_programs/audit_watch.py",))
    archives = (_archive("w"), _archive("w:gz"))
    yield Target("tar", _tar, archives, (ResourceError,), ("_resources/_unpack.py", "tarfile.py"))
    journal = b"".join(
        json.dumps({"step": step, "resource": "l/a", "number": number}).encode() + b"\n"
        for number, step in enumerate(("begin", "start", "backup", "done"))
    )
    yield Target("journal", _journal, (journal,), (), ("_engine/journal.py",))
    layer = {"mediaType": VERIFIER["PAYLOAD"], "digest": "sha256:" + "0" * 64,
             "annotations": {VERIFIER["SIGNATURE"]: "AAAA"}}  # fmt: skip
    signed = json.dumps({"layers": [layer]}).encode()
    claim = json.dumps({"critical": {"type": "cosign container image signature",
        "image": {"docker-manifest-digest": "sha256:" + "a" * 64},
        "identity": {"docker-reference": "a"}}}).encode()  # fmt: skip
    # The program takes every other error for a refusal too.
    refused = (VERIFIER["Refused"], ValueError, KeyError, TypeError, AttributeError, RecursionError)
    yield Target("signatures", _signatures, (signed, claim), refused, ("_programs/verify_image.py",))
    yield Target(
        "kms", _handover, (handover.seal(b"wrapped", b"s" * 32, {_KEY: _KEY}),), (), ("kms/handover.py",)
    )
    listing = write.as_yaml(racks.fleet(2))
    yield Target("racks", _racks, (listing,), (), ("plugin_utils/bare_metal/",))
    answer = json.dumps(racks.in_band(racks.server(0))).encode()
    yield Target("inspection", _inspection, (answer,), (), ("plugin_utils/bare_metal/",))
    yield Target("tpm", _tpm, tuple(_of_a_tpm()), (), ("plugin_utils/attestation/",))
    yield Target("encrypted", key_id, (b"\x0a\x03abc\x12\x02id\x18\x05",), (), ("encryption/stored.py",))


TARGETS = tuple(_targets())
