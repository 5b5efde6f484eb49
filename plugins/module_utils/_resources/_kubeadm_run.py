# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Running kubeadm: its inputs exist while it runs, only root reads them, and no secret is an argument."""

from __future__ import annotations

import contextlib
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import _kubeadm_config as text
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources._write import (
    read_text,
    remove_file,
    write_file,
)
from ansible_collections.ironspan.hybrid.plugins.module_utils._system import paths
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import Host, ResourceError, Spec

ADMIN_CONF = "/etc/kubernetes/admin.conf"
RUN_FOLDER = "/run/ironspan"
CONFIG = f"{RUN_FOLDER}/kubeadm.yaml"
DISCOVERY = f"{RUN_FOLDER}/discovery.conf"
JOIN_KEY = f"{RUN_FOLDER}/join.key"
TIMEOUT = 900.0
"""Seconds for one kubeadm, whose own waits (discovery, bootstrap, control plane) take five minutes each."""


def kubeadm(host: Host, *arguments: str) -> None:
    """Run kubeadm with the configuration of ``init_inputs`` or ``join_inputs``.

    Args:
        host: the host.
        arguments: without ``--config``.

    Raises:
        ResourceError: with the telling lines of kubeadm's output.
    """
    argv = ["kubeadm", *arguments, "--config", host.path(CONFIG)]
    status, output, problems = host.run(argv, check=False, timeout=TIMEOUT, env={"LC_ALL": "C"})
    if status != 0:
        words = " ".join(argument for argument in arguments if not argument.startswith("--"))
        reason = text.explain(f"{problems}\n{output}")
        raise ResourceError(f"kubeadm {words} failed:\n{reason}", text.remedy_for(problems))


@contextlib.contextmanager
def init_inputs(config: str, host: Host) -> t.Iterator[None]:
    """Let kubeadm's configuration for init and its phases exist.

    Args:
        config: the whole configuration; documents for joins are left out.
        host: the host.
    """
    try:
        write_input(host, CONFIG, text.init_configuration(config))
        yield
    finally:
        remove_file(host, CONFIG)


@contextlib.contextmanager
def join_inputs(spec: Spec, host: Host) -> t.Iterator[None]:
    """Let the configuration and the discovery file of a join exist; the latter has the join's credentials.

    Raises:
        Pending: the certificate was not carried.
        ResourceError: the CA certificate or the key is not there.
    """
    authority = read_text(host, spec["ca_path"])
    if authority is None:
        raise ResourceError(
            f"the cluster's CA certificate {spec['ca_path']} is not there",
            "Declare it as a file resource before the join.",
        )
    discovery, key = DISCOVERY, read_text(host, JOIN_KEY)
    try:
        if read_text(host, ADMIN_CONF) is None:
            certificate = host.certificate(spec["id"])
            if key is None:
                raise ResourceError(f"the key {JOIN_KEY} of this join is gone", "Run again, for a new one.")
            write_input(host, DISCOVERY, text.discovery_file(spec["endpoint"], authority, certificate, key))
        else:
            # The end of a control plane's join needs none: its own credentials are there by then.
            discovery = ADMIN_CONF
        write_input(
            host, CONFIG, text.join_configuration(spec["config"], host.path(discovery), spec["ca_path"])
        )
        yield
    except ResourceError as error:
        if key and text.encoded(key) in error.message:
            message = error.message.replace(text.encoded(key), "(secret)")
            raise ResourceError(message, error.remedy) from None
        raise
    finally:
        remove_file(host, DISCOVERY)
        remove_file(host, CONFIG)


def write_input(host: Host, path: str, content: str) -> None:
    """Write a file that only root reads into ``RUN_FOLDER``, whose content is gone after a reboot.

    Args:
        host: the host.
        path: below ``RUN_FOLDER``.
        content: the whole content.
    """
    folder = host.path(RUN_FOLDER)
    paths.make_folders(folder, 0o700)
    paths.set_owner_and_mode(folder, 0o700)
    write_file(host, path, content.encode(), 0o600)
