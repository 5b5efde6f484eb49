# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The messages of Kubernetes' KMS v2 plugins (k8s.io/kms, apis/v2/api.proto), described in code.

Eight small messages do not need generated files; encoding and checking is protobuf's own.
"""

from __future__ import annotations

import typing as t

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

SERVICE = "v2.KeyManagementService"
VERSION = "v2"
_TYPES = descriptor_pb2.FieldDescriptorProto
_MESSAGES: dict[str, dict[str, str]] = {
    "StatusRequest": {},
    "StatusResponse": {"version": "string", "healthz": "string", "key_id": "string"},
    "DecryptRequest": {"ciphertext": "bytes", "uid": "string", "key_id": "string", "annotations": "map"},
    "DecryptResponse": {"plaintext": "bytes"},
    "EncryptRequest": {"plaintext": "bytes", "uid": "string"},
    "EncryptResponse": {"ciphertext": "bytes", "key_id": "string", "annotations": "map"},
}
"""Fields in the order of their numbers; ``map`` is from text to bytes."""
METHODS = ("Status", "Encrypt", "Decrypt")


def _described() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="ironspan/kms/v2.proto", package="v2", syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, (field, kind) in enumerate(fields.items(), 1):
            if kind == "map":
                _add_map(message, name, field, number)
            else:
                which = _TYPES.TYPE_BYTES if kind == "bytes" else _TYPES.TYPE_STRING
                message.field.add(name=field, number=number, type=which, label=_TYPES.LABEL_OPTIONAL)
    return file


def _add_map(message: descriptor_pb2.DescriptorProto, name: str, field: str, number: int) -> None:
    entry = message.nested_type.add(name=f"{field.capitalize()}Entry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=_TYPES.TYPE_STRING, label=_TYPES.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=_TYPES.TYPE_BYTES, label=_TYPES.LABEL_OPTIONAL)
    message.field.add(
        name=field,
        number=number,
        type=_TYPES.TYPE_MESSAGE,
        label=_TYPES.LABEL_REPEATED,
        type_name=f".v2.{name}.{entry.name}",
    )


def _classes() -> dict[str, t.Any]:
    # A pool of its own: another module of the process may describe the same package.
    pool = descriptor_pool.DescriptorPool()
    pool.Add(_described())
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"v2.{name}")) for name in _MESSAGES
    }


MESSAGES: t.Final[dict[str, t.Any]] = _classes()
"""Classes of protobuf messages by name."""
