# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Manifests from charts, and images with files of a module's source; a script stands in for Helm."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pathlib
import tarfile

import pytest

from ironspan.artifacts import chart, image, lock, lock_file, recipes
from ironspan.cli.outcome import CommandError

ROOT = pathlib.Path(__file__).resolve().parents[3]
HELM = """#!/bin/sh
case "$*" in *refused.yml*) echo "line 3: no such value" >&2; exit 1;; esac
for last; do :; done
echo "# $HELM_CONFIG_HOME $HELM_PLUGINS"
cat "$last"
"""
MAIN = lock_file.load(ROOT / "artifacts.lock.yml")


@pytest.fixture
def helm(tmp_path: pathlib.Path) -> pathlib.Path:
    """Return a program that prints the values and where Helm would keep its settings."""
    program = tmp_path / "program"
    program.write_text(HELM)
    program.chmod(0o755)
    for name in ("values.yml", "refused.yml"):
        (tmp_path / name).write_text("replicas: 1\n")
    return program


def entry(values: str = "values.yml", sha256: str = "") -> lock.Chart:
    """Return an entry of a lock file."""
    return lock.Chart("helm/helm", "net/chart", values, "kube-system", "1.36.4", sha256)


def test_nobodys_own_settings_decide_what_is_rendered(
    helm: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HELM_PLUGINS", "/mine")
    monkeypatch.setenv("HELM_CONFIG_HOME", "/mine")
    chart.render(entry(), helm, tmp_path / "chart", tmp_path / "made", tmp_path)
    assert (tmp_path / "made").read_text() == f"# {tmp_path}/helm/config \nreplicas: 1\n"


def test_only_what_was_reviewed_is_taken(helm: pathlib.Path, tmp_path: pathlib.Path) -> None:
    chart.render(entry(), helm, tmp_path / "chart", tmp_path / "made", tmp_path)
    digest = hashlib.sha256((tmp_path / "made").read_bytes()).hexdigest()
    chart.render(entry(sha256=digest), helm, tmp_path / "chart", tmp_path / "made", tmp_path)
    (tmp_path / "values.yml").write_text("replicas: 2\n")
    with pytest.raises(CommandError, match=f"and {digest} was reviewed") as caught:
        chart.render(entry(sha256=digest), helm, tmp_path / "chart", tmp_path / "made", tmp_path)
    assert str(tmp_path / "made") in caught.value.remedy


def test_what_helm_says_is_told(helm: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with pytest.raises(CommandError, match="line 3: no such value"):
        chart.render(entry("refused.yml"), helm, tmp_path / "chart", tmp_path / "made", tmp_path)


def test_another_value_is_another_recipe(tmp_path: pathlib.Path) -> None:
    (tmp_path / "values.yml").write_text("replicas: 1\n")
    first = chart.recipe(entry(), tmp_path)
    assert first == chart.recipe(entry(), tmp_path)
    assert first != chart.recipe(entry(sha256="0" * 64), tmp_path)
    (tmp_path / "values.yml").write_text("replicas: 2\n")
    assert first != chart.recipe(entry(), tmp_path)


def test_ciliums_items_are_a_set_of_their_own() -> None:
    items = {item.key: item for item in MAIN.needed(["cilium"]) if item.set_name == "cilium"}
    assert list(items) == [
        "cilium-manifests/1.20.1",
        "quay.io/cilium/cilium:v1.20.1",
        "quay.io/cilium/operator-generic:v1.20.1",
    ]
    assert not any("cilium" in item.components() for item in MAIN.needed(["upgrade", "dns"]))
    for item in items.values():
        assert recipes.from_go(item, MAIN, "amd64")
    values = (chart.VALUES / "cilium.yml").read_text()
    manifests = items["cilium-manifests/1.20.1"]
    assert isinstance(manifests, lock.File)
    assert manifests.components() == {"cilium", "helm"}
    assert manifests.chart is not None and manifests.chart.values == "cilium.yml"
    # The manifests name the images that the lock file has.
    assert all(f"override: {key}" in values for key in items if ":" in key)


def test_files_of_a_modules_source_come_into_an_image(tmp_path: pathlib.Path) -> None:
    source = tmp_path / "bpf"
    (source / "lib").mkdir(parents=True)
    (source / "lib" / "common.h").write_text("int one;\n")
    (source / "run.sh").write_text("#!/bin/sh\n")
    for path in source.rglob("*.*"):
        path.chmod(0o444)
    made = image.program_layer({}, tmp_path / "layer", {"/var/lib/bpf": source, "/run.sh": source / "run.sh"})
    with tarfile.open(made.path) as archive:
        modes = {member.name: member.mode for member in archive.getmembers() if member.isfile()}
        assert archive.extractfile("var/lib/bpf/lib/common.h").read() == b"int one;\n"  # type: ignore[union-attr]
    assert modes == {"run.sh": 0o755, "var/lib/bpf/lib/common.h": 0o644, "var/lib/bpf/run.sh": 0o755}


SOUND = {
    "schema": 1,
    "components": {
        name: {
            "version": "1.0",
            "licence": "MIT",
            "modules": {f"example.org/{name}": "v1.0.0"},
            "programs": {name: f"example.org/{name}"},
        }
        for name in ("helm", "net")
    },
    "files": {
        "manifests/1.0": {
            "licence": "MIT",
            "path": "/manifests.yml",
            "go": {"pack": "chart", **{
                "program" if key == "program" else "chart" if key == "folder" else key: value
                for key, value in dataclasses.asdict(entry()).items()
            }},
        }
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("helm/helm", "helm/kustomize", "component helm has no program 'kustomize'"),
        ("net/chart", "web/chart", "there is no component 'web'"),
        ("net/chart", "net/../../etc", "is not COMPONENT/PATH"),
        ("net/chart", "net", "is not COMPONENT/PATH"),
        ('"sha256": ""', '"sha256": "abc"', "'abc' is not 64 hexadecimal digits"),
        ('"values": "values.yml"', '"values": ""', "values: must be text"),
    ],
)
def test_a_wrong_chart_is_refused(old: str, new: str, problem: str) -> None:
    text = json.dumps(SOUND)
    assert isinstance(lock_file.parse(text), lock.Lock)
    assert old in text
    with pytest.raises(CommandError) as caught:
        lock_file.parse(text.replace(old, new))
    assert problem in caught.value.message
