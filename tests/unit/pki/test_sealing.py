# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.errors import PkiError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.keys import generate_key_file, load_key
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.sealing import key_id, seal, unseal
from hypothesis import given
from hypothesis import strategies as st

KEY = bytes(range(32))
OTHER = bytes(32)


@given(secret=st.binary(max_size=5000), name=st.text(max_size=40))
def test_what_is_sealed_opens(secret: bytes, name: str) -> None:
    assert unseal(KEY, name, seal(KEY, name, secret)) == secret


def test_every_changed_bit_is_refused() -> None:
    sealed = seal(KEY, "kubernetes-key", b"a private key")
    for position in range(len(sealed)):
        for bit in range(8):
            altered = bytearray(sealed)
            altered[position] ^= 1 << bit
            with pytest.raises(PkiError):
                unseal(KEY, "kubernetes-key", bytes(altered))


def test_every_cut_and_anything_behind_is_refused() -> None:
    sealed = seal(KEY, "name", b"a private key")
    for length in range(len(sealed)):
        with pytest.raises(PkiError):
            unseal(KEY, "name", sealed[:length])
    with pytest.raises(PkiError):
        unseal(KEY, "name", sealed + b"\0")


@given(content=st.binary(max_size=300))
def test_any_other_content_is_refused(content: bytes) -> None:
    with pytest.raises(PkiError):
        unseal(KEY, "name", content)


def test_name_is_part_of_the_seal() -> None:
    with pytest.raises(PkiError, match="belongs to another name"):
        unseal(KEY, "etcd-key", seal(KEY, "kubernetes-key", b"a private key"))


def test_wrong_key_is_named_by_its_id() -> None:
    with pytest.raises(PkiError, match=f"encrypted with key {key_id(KEY)}; the key given is {key_id(OTHER)}"):
        unseal(OTHER, "name", seal(KEY, "name", b"a private key"))


def test_same_secret_is_never_sealed_the_same() -> None:
    assert seal(KEY, "name", b"secret") != seal(KEY, "name", b"secret")


def test_key_id_does_not_give_the_key_away() -> None:
    assert key_id(KEY) not in KEY.hex()
    assert len(key_id(KEY)) == 16


def test_generated_key_file(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        path = generate_key_file(tmp_path / "pki.key")
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(load_key(path)) == 32
    content = path.read_bytes()
    with pytest.raises(PkiError, match="exists already"):
        generate_key_file(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610, 0o601, 0o666])
def test_key_file_others_may_touch_is_refused(tmp_path: Path, mode: int) -> None:
    path = generate_key_file(tmp_path / "pki.key")
    path.chmod(mode)
    with pytest.raises(PkiError, match=f"mode {mode:04o}.* chmod 0600 "):
        load_key(path)


GOOD = base64.b64encode(KEY).decode()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "not base64",
        base64.b64encode(KEY[:31]).decode(),
        base64.b64encode(KEY + b"x").decode(),
        KEY.hex(),
        GOOD + GOOD,
        GOOD[:-1],
        "é" + GOOD,
    ],
)
def test_malformed_key_is_refused_without_showing_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / "pki.key"
    path.write_text(text)
    path.chmod(0o600)
    for source, environment in ((path, {}), (None, {"IRONSPAN_PKI_KEY": text})):
        with pytest.raises(PkiError) as caught:
            load_key(source, environment)
        assert caught.value.remedy
        assert not text.strip() or text.strip() not in str(caught.value)


def test_key_from_the_environment() -> None:
    assert load_key(None, {"IRONSPAN_PKI_KEY": f" {GOOD}\n"}) == KEY
    assert load_key("", {"IRONSPAN_PKI_KEY": GOOD}) == KEY


def test_file_comes_before_the_environment(tmp_path: Path) -> None:
    path = generate_key_file(tmp_path / "pki.key")
    assert load_key(path, {"IRONSPAN_PKI_KEY": GOOD}) != KEY


def test_missing_key_names_both_places() -> None:
    with pytest.raises(PkiError, match=r"site_pki_key_file.*IRONSPAN_PKI_KEY"):
        load_key(None, {})


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(PkiError, match="does not exist"):
        load_key(tmp_path / "none")
    with pytest.raises(PkiError, match=r"not a regular file|cannot be read"):
        load_key(tmp_path)
