# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Signatures by the real ssh-keygen, and who they count for."""

from __future__ import annotations

import base64
import shutil
import subprocess
import typing as t
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.errors import PlanError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan import approvals, check
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.content import Plan, seal
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.plan import samples

MADE = samples.plan()


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the keys of a few people, two of them ada's."""
    folder = tmp_path_factory.mktemp("keys")
    for name in ("ada", "ada2", "bob", "eve"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(folder / name)], check=True
        )
    return folder


def public(keys: Path, name: str) -> str:
    return " ".join((keys / f"{name}.pub").read_text().split()[:2])


@pytest.fixture
def signers(tmp_path: Path, keys: Path) -> Path:
    file = tmp_path / "signers"
    file.write_text(
        f"# who may\nada@x {public(keys, 'ada')}\nada@x {public(keys, 'ada2')}\nbob@x {public(keys, 'bob')}\n"
    )
    return file


def site(signers: Path, count: int = 2, **more: t.Any) -> t.Any:
    return samples.site(approvals=count, allowed_signers=str(signers), **more)


@pytest.mark.parametrize(
    ("who", "names"),
    [
        ((), []),
        (("ada",), ["ada@x"]),
        (("ada", "ada"), ["ada@x"]),
        (("ada", "ada2"), ["ada@x"]),
        (("ada", "bob"), ["ada@x", "bob@x"]),
        (("eve", "bob"), ["bob@x"]),
    ],
)
def test_who_approved(
    tmp_path: Path, keys: Path, signers: Path, who: tuple[str, ...], names: list[str]
) -> None:
    path = samples.written(tmp_path)
    for name in who:
        approvals.sign(MADE.data, path, keys / name)
    found = approvals.check(MADE.data, path, signers)
    assert found.names == names
    assert len(found.void) == ("eve" in who)
    if len(names) < 2:
        with pytest.raises(PlanError, match=f"needs 2 approvals and has {len(names)}"):
            check.check(MADE, path, site(signers), samples.NOW)
    else:
        assert check.check(MADE, path, site(signers), samples.NOW) == found.names


def test_a_signature_is_what_ssh_keygen_makes_and_checks(tmp_path: Path, keys: Path, signers: Path) -> None:
    path = samples.written(tmp_path)
    subprocess.run(
        ["ssh-keygen", "-q", "-Y", "sign", "-n", "ironspan-plan", "-f", keys / "bob", path], check=True
    )
    approvals.folder_of(path).mkdir()
    path.with_name(f"{path.name}.sig").rename(approvals.folder_of(path) / "any-name.sig")
    assert approvals.check(MADE.data, path, signers).names == ["bob@x"]


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        ("other plan", "not a signature of this plan"),
        ("other namespace", "not a signature of this plan"),
        ("expired key", "not among the allowed signers"),
        ("pattern", "is a pattern"),
        ("garbage", "not among the allowed signers"),
        ("empty", "not among the allowed signers"),
    ],
)
def test_signatures_that_count_for_nothing(
    tmp_path: Path, keys: Path, signers: Path, spoil: str, reason: str
) -> None:
    path = samples.written(tmp_path)
    file = approvals.sign(MADE.data, path, keys / "bob")
    if spoil == "other plan":
        approvals.sign(samples.plan(left_out=["w9"]).data, path, keys / "bob")
    elif spoil == "other namespace":
        done = subprocess.run(
            ["ssh-keygen", "-q", "-Y", "sign", "-n", "file", "-f", keys / "bob"],
            input=MADE.data, capture_output=True, check=True,
        )  # fmt: skip
        file.write_bytes(done.stdout)
    elif spoil == "expired key":
        signers.write_text(f'bob@x valid-before="20200101" {public(keys, "bob")}\n')
    elif spoil == "pattern":
        signers.write_text(f"*@x {public(keys, 'bob')}\n")
    else:
        file.write_bytes(b"-----BEGIN SSH SIGNATURE-----\n" if spoil == "garbage" else b"")
    found = approvals.check(MADE.data, path, signers)
    assert found.names == []
    assert len(found.void) == 1 and reason in found.void[0]


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(position=st.integers(0, 10_000), change=st.integers(1, 255))
def test_no_byte_of_a_signature_can_be_another(
    tmp_path: Path, keys: Path, signers: Path, position: int, change: int
) -> None:
    path = samples.written(tmp_path)
    shutil.rmtree(approvals.folder_of(path), ignore_errors=True)
    file = approvals.sign(MADE.data, path, keys / "bob")
    lines = file.read_text().splitlines()
    raw = bytearray(base64.b64decode("".join(lines[1:-1])))
    raw[position % len(raw)] ^= change
    text = base64.b64encode(raw).decode()
    file.write_text("\n".join([lines[0], text, lines[-1], ""]))
    assert approvals.check(MADE.data, path, signers).names == []


def test_keys_that_do_not_sign(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="does not sign"):
        approvals.sign(MADE.data, samples.written(tmp_path), tmp_path / "no-key")


def test_no_file_of_signers(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="no file of allowed signers"):
        approvals.check(MADE.data, samples.written(tmp_path), tmp_path / "none")


@pytest.mark.parametrize(
    ("policy", "needed"),
    [
        ({}, 0),
        ({"approvals": 1}, 1),
        ({"approvals": 1, "unapproved_kinds": ("file", "systemd_unit")}, 1),
        ({"approvals": 1, "unapproved_kinds": ("file", "systemd_unit", "kubeadm")}, 0),
    ],
)
def test_how_many_approvals_are_needed(policy: dict[str, t.Any], needed: int) -> None:
    assert check.approvals_needed(MADE, samples.site(**policy).plan) == needed


def test_objects_of_the_cluster_are_a_kind_of_their_own() -> None:
    change = {"kind": "object", "name": "ConfigMap x", "before": "", "after": "a: 1\n"}
    made = samples.plan(samples.QUIET, cluster={"changes": [change]})
    assert check.approvals_needed(made, samples.site(approvals=1).plan) == 1
    assert (
        check.approvals_needed(made, samples.site(approvals=1, unapproved_kinds=("cluster_object",)).plan)
        == 0
    )
    nothing = samples.plan(samples.QUIET)
    assert check.approvals_needed(nothing, samples.site(approvals=1).plan) == 1, (
        "that it changes nothing is a claim"
    )
    assert check.approvals_needed(nothing, samples.site(approvals=1, unapproved_kinds=("file",)).plan) == 0


@pytest.mark.parametrize(
    ("made", "of", "now", "words"),
    [
        (MADE, samples.site(), samples.NOW, ""),
        (MADE, samples.site(), samples.NOW + 24 * 3600 - 1, ""),
        (MADE, samples.site(), samples.NOW - 300, ""),
        (MADE, samples.site(), samples.NOW + 24 * 3600, "expired at 2027-01-16"),
        (MADE, samples.site(), samples.NOW - 301, "still to come"),
        (MADE, samples.site("large"), samples.NOW, "for the site 'small', this inventory is 'large'"),
        (MADE, samples.site(uid="f" * 16), samples.NOW, "for another 'small'"),
    ],
)
def test_site_and_time(tmp_path: Path, made: Plan, of: t.Any, now: int, words: str) -> None:
    if not words:
        assert check.check(made, tmp_path / "p", of, now) == []
        return
    with pytest.raises(PlanError, match=words):
        check.check(made, tmp_path / "p", of, now)


def test_an_expiry_that_was_put_off_is_another_plan(tmp_path: Path, keys: Path, signers: Path) -> None:
    path = samples.written(tmp_path)
    approvals.sign(MADE.data, path, keys / "bob")
    later = seal({**MADE.content, "expires": MADE.content["expires"] + 10**6})
    with pytest.raises(PlanError, match="has 0: nobody"):
        check.check(later, samples.written(tmp_path, later), site(signers, 1), samples.NOW)
