# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Only identities that the platform proves; keys are refused by what they look like."""

from __future__ import annotations

import os
import pathlib
import typing as t

import pytest
from azure.core.exceptions import AzureError, ClientAuthenticationError, ServiceResponseError

from ironspan.azure.identity import Identity, credential, refuse_secrets
from ironspan.backup.azure.blob import open_azure
from ironspan.program.errors import ProgramError, ServiceError

URL = "https://acme.blob.core.windows.net"
MANAGED = {"kind": "managed_identity", "client_id": ""}
VARIABLES = ("IDENTITY_ENDPOINT", "IMDS_ENDPOINT", "IDENTITY_HEADER", "MSI_ENDPOINT")


@pytest.fixture(autouse=True)
def _no_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        # Set first, so that what the code under test sets is taken away again.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def who(settings: dict[str, t.Any]) -> str:
    return credential(settings)._who


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"account_url": f"{URL}?sv=2024&sig=c2VjcmV0"}, "account_url"),
        ({"account_url": URL, "account_key": "c2VjcmV0"}, "account_key"),
        (
            {"account_url": "DefaultEndpointsProtocol=https;AccountName=acme;AccountKey=c2VjcmV0"},
            "account_url",
        ),
        ({"credential": {"kind": "managed_identity", "client_secret": "c2VjcmV0"}}, "client_secret"),
        ({"container": "BlobEndpoint=x;SharedAccessSignature=c2VjcmV0"}, "container"),
        ({"sas_token": "c2VjcmV0"}, "sas_token"),
    ],
)
def test_keys_are_refused_and_not_repeated(settings: dict[str, t.Any], named: str) -> None:
    with pytest.raises(ProgramError) as caught:
        refuse_secrets(settings)
    assert f"The setting {named} holds" in str(caught.value)
    assert "c2VjcmV0" not in str(caught.value)


def test_ordinary_settings_pass() -> None:
    refuse_secrets({"account_url": URL, "container": "etcd", "private": True, "credential": MANAGED})


def test_a_store_refuses_keys_before_it_asks_the_dns() -> None:
    with pytest.raises(ProgramError, match="holds a key"):
        open_azure({"account_url": f"{URL}?sig=x", "container": "etcd", "credential": MANAGED})


def test_a_store_without_tls_is_refused() -> None:
    with pytest.raises(ProgramError, match="is not https"):
        open_azure({"account_url": "http://127.0.0.1:10000/a", "container": "etcd", "credential": MANAGED})


def test_managed_identity() -> None:
    assert "managed identity" in who({"kind": "managed_identity", "client_id": "x"})
    assert "IDENTITY_ENDPOINT" not in os.environ


def test_managed_identity_on_an_arc_server_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IDENTITY_ENDPOINT", "http://127.0.0.1:40342/metadata/identity/oauth2/token")
    with pytest.raises(ProgramError, match="kind to arc"):
        credential(MANAGED)


def test_arc_asks_the_agent_of_this_host() -> None:
    assert "Arc" in who({"kind": "arc"})
    assert os.environ["IDENTITY_ENDPOINT"] == "http://127.0.0.1:40342/metadata/identity/oauth2/token"


def test_workload_identity(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "token"
    settings = {
        "kind": "workload_identity",
        "tenant_id": "t",
        "client_id": "c",
        "token_file": str(file),
        "authority": "https://127.0.0.1:9",
    }
    with pytest.raises(ProgramError, match="is not there or cannot be read"):
        credential(settings)
    file.write_text("x")
    assert "workload" in who(settings)
    with pytest.raises(ProgramError, match="needs tenant_id, client_id"):
        credential({"kind": "workload_identity", "token_file": str(file)})


def test_another_kind_is_refused() -> None:
    with pytest.raises(ProgramError, match="keys are not used"):
        credential({"kind": "account_key"})


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (
            ClientAuthenticationError("AADSTS70021: No matching federated identity record, eyJ0eXAi"),
            " (AADSTS70021).",
        ),
        (ServiceResponseError("Connection aborted eyJ0eXAi"), "workload identity."),
    ],
)
@pytest.mark.parametrize("method", ["get_token", "get_token_info"])
def test_no_token_is_no_failure_of_the_store(error: AzureError, code: str, method: str) -> None:
    class Failing:
        def get_token(self, *scopes: str, **options: t.Any) -> t.NoReturn:
            raise error

        get_token_info = get_token

    proven: t.Any = Failing()
    with pytest.raises(ServiceError, match="There is no token for the workload identity") as caught:
        getattr(Identity(proven, "workload identity", "Look at it."), method)("scope")
    assert caught.value.retryable
    assert code in str(caught.value)
    assert "eyJ0eXAi" not in str(caught.value)
