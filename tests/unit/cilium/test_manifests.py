# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Manifests are read from the mirror, and only those that its index names."""

from __future__ import annotations

import hashlib
import pathlib

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.artifacts_index import ArtifactsIndexError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cilium.manifests import read

TEXT = b"---\nkind: ConfigMap\n---\n# nothing\n---\nkind: Secret\n"


def test_empty_documents_are_no_objects(tmp_path: pathlib.Path) -> None:
    (tmp_path / "some").mkdir()
    (tmp_path / "some" / "file.yml").write_bytes(TEXT)
    digest = hashlib.sha256(TEXT).hexdigest()
    assert read(tmp_path, "/some/file.yml", digest) == [{"kind": "ConfigMap"}, {"kind": "Secret"}]


def test_another_file_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ArtifactsIndexError, match="artifacts build --set cilium"):
        read(tmp_path, "/file.yml", "0" * 64)
    (tmp_path / "file.yml").write_bytes(TEXT)
    with pytest.raises(ArtifactsIndexError, match="artifacts verify"):
        read(tmp_path, "/file.yml", "0" * 64)
