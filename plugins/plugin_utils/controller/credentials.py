# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Credential types and credentials. No secret is here, only the environment variables that hold them."""

from __future__ import annotations

import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.kinds import Operation
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller.settings import Settings
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller.values import Literal, Secret

Content = dict[str, t.Any]
MACHINE = "Machine"
PKI, BMC, AZURE, READER = "PKI key", "BMC accounts", "Azure identity", "controller reader"
FACTORY = "ironspan_factory"
HOST, TOKEN = "IRONSPAN_CONTROLLER_HOST", "IRONSPAN_CONTROLLER_TOKEN"
"""What a guard's job gets in its environment."""
SSH_KEY: t.Final = Secret("IRONSPAN_AWX_SSH_KEY")
PKI_KEY: t.Final = Secret("IRONSPAN_PKI_KEY")
BMC_ACCOUNTS: t.Final = Secret("IRONSPAN_AWX_BMC_ACCOUNTS")
READER_TOKEN: t.Final = Secret("IRONSPAN_AWX_READER_TOKEN")


def _field(name: str, label: str, *, secret: bool = False, lines: bool = False) -> Content:
    # The controller stores the type of each field, and would be written to again each time without it.
    more = {**({"secret": True} if secret else {}), **({"multiline": True} if lines else {})}
    return {"id": name, "label": label, "type": "string", **more}


def _injected(name: str) -> Literal:
    return Literal("{{ " + name + " }}")


def credential_types(settings: Settings) -> list[Content]:
    """Return the types that controllers do not have by themselves."""
    made = [
        _type(
            settings.name(PKI),
            "Opens the PKI store of a site.",
            [_field("key", "Key of the PKI store", secret=True)],
            {"env": {"IRONSPAN_PKI_KEY": _injected("key")}},
        ),
        _type(
            settings.name(READER),
            "Reads workflows of this controller: who launched one, and who approved it.",
            [
                _field("host", "URL of this controller"),
                _field("token", "Token of an account that may read", secret=True),
            ],
            {"env": {HOST: _injected("host"), TOKEN: _injected("token")}},
        ),
    ]
    if settings.bmc_accounts:
        made.append(
            _type(
                settings.name(BMC),
                "The accounts that BMCs come with, as a file for one job.",
                [_field("accounts", "File of accounts (docs/bmc.md)", secret=True, lines=True)],
                {
                    "file": {"template": _injected("accounts")},
                    "extra_vars": {FACTORY: _injected("tower.filename")},
                },
            )
        )
    if settings.azure:
        made.append(
            _type(
                settings.name(AZURE),
                "A federated identity: its token is a file that the pod of the job has. No secret.",
                [
                    _field("tenant", "Tenant"),
                    _field("client", "Client"),
                    _field("token_file", "File of the token"),
                ],
                {
                    "env": {
                        "AZURE_TENANT_ID": _injected("tenant"),
                        "AZURE_CLIENT_ID": _injected("client"),
                        "AZURE_FEDERATED_TOKEN_FILE": _injected("token_file"),
                    }
                },
            )
        )
    return made


def _type(name: str, description: str, fields: list[Content], injectors: Content) -> Content:
    inputs = {"fields": fields, "required": [field["id"] for field in fields]}
    return {
        "name": name,
        "description": description,
        "kind": "cloud",
        "inputs": inputs,
        "injectors": injectors,
    }


def credentials(settings: Settings, host: str) -> list[Content]:
    """Return the credentials of all templates.

    Args:
        settings: of the site.
        host: URL of the controller, for the jobs that read it.
    """
    made = [
        _credential(
            settings,
            "SSH",
            MACHINE,
            "The key of the hosts.",
            {"username": settings.ssh_user, "ssh_key_data": SSH_KEY},
        ),
        _credential(settings, PKI, settings.name(PKI), "The key of the PKI store.", {"key": PKI_KEY}),
        _credential(
            settings,
            READER,
            settings.name(READER),
            "An account of the auditors' team.",
            {"host": host, "token": READER_TOKEN},
        ),
    ]
    if settings.bmc_accounts:
        inputs: Content = {"accounts": BMC_ACCOUNTS}
        made.append(_credential(settings, BMC, settings.name(BMC), "What BMCs come with.", inputs))
    if settings.azure:
        inputs = {
            "tenant": settings.azure_tenant_id,
            "client": settings.azure_client_id,
            "token_file": settings.azure_token_file,
        }
        made.append(
            _credential(settings, AZURE, settings.name(AZURE), "The identity of jobs in Azure.", inputs)
        )
    return made


def _credential(settings: Settings, name: str, kind: str, description: str, inputs: Content) -> Content:
    return {
        "name": settings.name(name),
        "description": description,
        "organization": settings.organization,
        "credential_type": kind,
        "inputs": inputs,
        # Controllers never give a secret back; with true each run would write it again.
        "update_secrets": False,
    }


def needed_by(settings: Settings, operation: Operation) -> list[str]:
    """Return the names of the credentials that jobs of an operation get."""
    asks_bmcs = operation.argument(FACTORY) is not None
    made = ["SSH", PKI]
    made += [BMC] if asks_bmcs and settings.bmc_accounts else []
    made += [AZURE] if settings.azure else []
    return [settings.name(name) for name in made]
