# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""TPMs are asked of workers, for something."""

from __future__ import annotations

import pytest

from tests.support.tpm_maker import Maker

from .conftest import Example


@pytest.mark.parametrize(
    ("file", "lines", "says", "at"),
    [
        ("all", "node_attestation: require", "is a control plane, and only workers are attested", 1),
        ("nodes", "node_attestation: record\nnode_attestation_pcrs: []", "a quote says nothing", 2),
        ("nodes", "node_attestation: on", "must be text, is a boolean", 1),
        ("nodes", "node_attestation: required", "'required' is not one of off, record, require", 1),
        ("nodes", "node_attestation_pcrs: [0, 24]", "24 is outside 0 to 23", 1),
        ("nodes", "node_attestation_tcti: a b", "'a b' is no single word", 1),
        ("nodes", "node_attestation_tcti: /dev/tpmrm0", "is no way to a TPM", 1),
        ("nodes", "node_attestation_tcti: device:/etc/passwd", "is no way to a TPM", 1),
        ("nodes", "node_attestation: record\nnode_attestation_tcti: cmd", "is no way to a TPM", 2),
        ("nodes", f"node_attestation_ek_sha256: {'a1' * 32}", "is that of host gpu-a-01 too", 1),
        ("nodes", "node_attestation_ek_sha256: 4D0", "is no SHA-256", 1),
        ("nodes", "node_attestation_ek_authorities: [tpm/maker.pem]", "has no certificate in PEM", 1),
    ],
)
def test_mistakes(example: Example, file: str, lines: str, says: str, at: int) -> None:
    place = f"group_vars/{file}.yml"
    example.append(place, f"\n{lines}\n")
    problems = example.problems()
    assert problems
    for problem in problems:
        assert says in problem.message
        line = lines.splitlines()[at - 1]
        assert (problem.file, problem.line) == (str(example.folder / place), example.line(place, line))


@pytest.mark.parametrize("mode", ["off", '"off"', "record", "require"])
def test_modes(example: Example, mode: str) -> None:
    """YAML reads off without quotes as a boolean, and so does Ansible where it is one of the choices."""
    example.append("group_vars/nodes.yml", f"\nnode_attestation: {mode}\n")
    assert example.problems() == []


def test_authorities_stand_in_the_inventory_as_their_makers_publish_them(example: Example) -> None:
    text = "\n".join(f"    {line}" for line in Maker("a maker").pem.splitlines())
    example.append("group_vars/nodes.yml", f"\nnode_attestation_ek_authorities:\n  - |\n{text}\n")
    assert example.problems() == []


@pytest.mark.parametrize("same", [False, True])
def test_a_tpm_is_that_of_one_host(example: Example, same: bool) -> None:
    for number in (1, 2):
        digest = "ab" * 32 if same else f"a{number}" * 32
        example.append(f"host_vars/gpu-a-0{number}.yml", f"node_attestation_ek_sha256: {digest}\n")
    assert [problem.file for problem in example.problems()] == (
        [str(example.folder / "host_vars/gpu-a-02.yml")] if same else []
    )


@pytest.mark.parametrize("way", ["device:/dev/tpm0", "tabrmd", "swtpm:path=/run/tpm", "cmd:ssh"])
def test_ways_to_a_tpm(example: Example, way: str) -> None:
    example.append("group_vars/nodes.yml", f"\nnode_attestation: require\nnode_attestation_tcti: {way}\n")
    assert example.problems() == []
