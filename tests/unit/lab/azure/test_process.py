# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Where requests of one address go, and where the services of a lab listen."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from ironspan.lab import processes
from ironspan.lab.azure import identity, service, settings
from ironspan.lab.azure.config import SERVICES, Config
from ironspan.lab.azure.http import Handler, Request, Response, no_body
from ironspan.lab.azure.process import _placer, by_host
from ironspan.lab.azure.world import World
from ironspan.lab.layout import Layout


def named(name: str) -> Handler:
    async def answer(_: Request) -> Response:
        return Response(200, {}, name.encode())

    return answer


@pytest.mark.parametrize(
    ("host", "path", "where"),
    [
        (settings.BLOB_HOST, "/etcd/a", b"store"),
        (f"{settings.BLOB_HOST}:443", "/subscriptions/a", b"management"),
        (settings.LOGIN_HOST, "/etcd/a", b"login"),
        (settings.MANAGEMENT_HOST.upper(), "/etcd/a", b"management"),
        ("10.98.0.253", f"/{settings.TENANT}/oauth2/v2.0/token", b"login"),
        ("10.98.0.253", "/subscriptions/x/resourceGroups/y", b"management"),
        ("10.98.0.253", "/labstore/etcd/a", b"store"),
        ("10.98.0.253", "/", b"store"),
    ],
)
def test_services_on_one_address(host: str, path: str, where: bytes) -> None:
    handler = by_host({name: named(name) for name in ("store", "login", "management")})
    response = asyncio.run(_answer(handler, Request("GET", path, {"host": host}, no_body())))
    assert response.body == where


async def _answer(handler: Handler, request: Request) -> Response:
    return await handler(request)


def test_a_lab_listens_in_its_router_where_azure_does() -> None:
    config = service.configuration(Layout("lab", 3, 2, 2))
    assert set(config.endpoints) == set(SERVICES)
    assert config.namespace == "islab3-a"
    assert config.endpoints["store"] == ["10.98.6.253", 443]
    assert config.endpoints["metadata"] == ["169.254.169.254", 80]
    assert config.machines == {"10.98.7.11": "rack-1", "10.98.7.12": "rack-2"}


def test_the_configuration_is_read_as_it_was_written(tmp_path: Path) -> None:
    config = service.configuration(Layout("lab", 0, 1, 1))
    config.save(tmp_path)
    assert Config.load(tmp_path) == config


def test_several_programs_of_an_arc_machine_ask_at_once(tmp_path: Path) -> None:
    config = Config({}, [], machines={"127.0.0.1": ""}, arc_folder=f"{tmp_path}/tokens")
    arc = identity.Arc(World(tmp_path / "world"), _placer(config), config.arc_folder)
    target = f"{identity.TOKEN_PATH}?api-version=2020-06-01&resource=https://storage.azure.com"

    def ask(peer: str = "127.0.0.1", secret: str = "") -> Response:
        headers = {"metadata": "true", **({"authorization": f"Basic {secret}"} if secret else {})}
        return asyncio.run(_answer(arc, Request("GET", target, headers, no_body(), peer)))

    paths = [Path(ask().headers["www-authenticate"].partition("=")[2]) for _ in range(2)]
    secrets = [path.read_text() for path in paths]
    assert [path.stat().st_mode & 0o777 for path in paths] == [0o640, 0o640]
    assert ask("127.0.0.2", secrets[0]).status == 401  # not the machine that it was written into
    assert ask(secret=secrets[1]).status == 200
    assert ask(secret=secrets[1]).status == 401  # good for once
    assert ask("127.0.0.2").status == 403
    os.utime(paths[1], (0, 0))
    ask()
    assert [path.exists() for path in paths] == [True, False]


def test_a_process_that_nobody_wrote_down_is_ended(tmp_path: Path) -> None:
    lab, other = tmp_path / "lab", tmp_path / "other"
    script = ["/bin/sh", "-c", "sleep 600; true"]
    stray = processes.spawn([*script, "azure/blobs"], lab, "azurite")
    kept = [
        processes.spawn([*script, "azure/blobs"], other, "azurite"),
        processes.spawn([*script, "azure/blobs/more"], lab, "another"),
    ]
    try:
        service.end_strays(lab, "azure/blobs")
        assert processes.start_time(stray) is None
        assert all(processes.start_time(pid) is not None for pid in kept)
    finally:
        processes.kill([*processes.marked(lab), *processes.marked(other)])
