# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A member's first start, killed at every step: it starts a cluster once, and not beside its own data."""

from __future__ import annotations

import base64
import json
import os
import shutil
import typing as t
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.crash import VARIABLE
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources.etcd_member import INPUT

from tests.unit.conftest import Sandbox
from tests.unit.resources.test_etcd_member import ALL, DATA, PATH, SETTLED, document, log

# What etcd does at its start: it notes with which lines it began, and has data from then on.
ETCD = f"""#!/bin/sh
root=$IRONSPAN_ROOT
case "$1 $*" in
start*etcd.service|restart*etcd.service)
    if [ ! -e $root{DATA}/member/wal/0-0.wal ]; then
        grep '^initial-' $root{PATH} >>$root/began
        mkdir -p $root{DATA}/member/wal
        echo {base64.b64encode(log(0xABC, 0xDEF)).decode()} | base64 -d >$root{DATA}/member/wal/0-0.wal
    fi;;
esac
exec $root/usr/local/ironspan-test-bin/systemctl.real "$@"
"""
pytestmark = pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
SECRETS = {INPUT: json.dumps({"state": "new", "cluster": ALL})}


def prepared(folder: Path, template: Sandbox) -> Sandbox:
    shutil.copytree(template.root, folder, symlinks=True)
    copy = object.__new__(Sandbox)
    copy.root, copy.mirror = folder, ""
    return copy


def killed(sandbox: Sandbox, step: int, resources: list[dict[str, t.Any]]) -> bool:
    """Run and be killed at a step; tells whether the run got that far."""
    child = os.fork()
    if child == 0:
        os.environ[VARIABLE] = str(step)
        sandbox.run(*resources, secrets=SECRETS)
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


@pytest.mark.usefixtures("no_sync")
def test_a_first_start_killed_anywhere_is_finished_and_begins_one_store(
    tmp_path: Path, sandbox: Sandbox
) -> None:
    programs = sandbox.root / "usr/local/ironspan-test-bin"
    (programs / "systemctl").rename(programs / "systemctl.real")
    sandbox.put("usr/local/ironspan-test-bin/systemctl", ETCD, 0o755)
    resources = document(sandbox)
    step = 0
    while True:
        step += 1
        host = prepared(tmp_path / f"host{step}", sandbox)
        cut = killed(host, step, resources)
        # The next run carries nothing at first, as site.yml does after it has compared.
        result = host.run(*resources)
        assert not result.get("failed"), (step, result["msg"])
        if result["pending"]:
            assert not (host.root / f"{DATA.lstrip('/')}/member").exists(), step
            result = host.run(*resources, secrets=SECRETS)
            assert not result.get("failed"), (step, result["msg"])
        assert host.read(PATH) == SETTLED, step
        began = host.read("began").splitlines()
        assert began == [f"initial-cluster: {ALL}", "initial-cluster-state: new"], step
        again = host.run(*resources)
        assert (again["changed"], again["pending"]) == (False, []), step
        shutil.rmtree(host.root)
        if not cut:
            break
    assert step > 20
