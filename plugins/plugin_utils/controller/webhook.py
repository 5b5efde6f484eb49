# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The key of the webhook by which pushes to the project start the check of the site."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller.api import (
    Api,
    ControllerError,
    token_of_environment,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller.settings import Settings
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller.templates import CHECK


def another_key(settings: Settings, host: str, ca_file: str) -> tuple[str, str]:
    """Let the controller make another key; return it, and the URL that the service calls.

    Args:
        settings: of the site, with a service.
        host: URL of the controller.
        ca_file: of the authority of its certificate, or "".

    Raises:
        ControllerError: it does not answer, refuses, or has no such template with this service.
    """
    api = Api(host, token_of_environment(), ca_file)
    name = settings.name("site", CHECK)
    found = api.listed("job_templates/", name=name, organization__name=settings.organization)
    there = next((one for one in found if one.get("name") == name), None)
    if there is None or there.get("webhook_service") != settings.webhook_service:
        raise ControllerError(
            f"the controller has no template {name!r} with the webhook of {settings.webhook_service}",
            "run ironspan awx configure",
        )
    path = f"job_templates/{int(there['id'])}/"
    key = str(api.post(f"{path}webhook_key/", {})["webhook_key"])
    return key, f"{host.rstrip('/')}{api.prefix}{path}{settings.webhook_service}/"
