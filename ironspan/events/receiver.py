# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Takes alerts as Alertmanager's webhook sends them (``POST /alerts``), from whoever has the token."""

from __future__ import annotations

import hmac
import json
import logging
import typing as t
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from ironspan.events.decide import Alert, Decision
from ironspan.program.errors import ProgramError

LOG = logging.getLogger(__name__)
MOST_BYTES = 1 << 20
MOST_ALERTS = 1000
_LONGEST_NAME = 200
_LEAST_TOKEN = 16
"""Letters: what is shorter can be guessed."""
Start = Callable[..., t.Any]


class Receiver:
    """A WSGI application.

    Args:
        take: acts on alerts.
        token_file: bearer tokens, one a line. It is read for each request, so a rotation needs no restart.
        failed: called with what went wrong.
    """

    def __init__(
        self,
        take: Callable[[Sequence[Alert]], Sequence[Decision]],
        token_file: Path,
        failed: Callable[[BaseException], object] = lambda error: None,
    ) -> None:
        self._take, self._token_file, self._failed = take, token_file, failed

    def __call__(self, asked: dict[str, t.Any], start: Start) -> Iterable[bytes]:
        """Answer one request: 200 when all alerts were dealt with, 503 when they shall be sent again."""
        status, text = self._answer(asked)
        body = f"{text}\n".encode()
        start(status, [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(body)))])
        return [body]

    def _answer(self, asked: dict[str, t.Any]) -> tuple[str, str]:
        try:
            # Before anything of the request is read or looked at.
            if not self._known(str(asked.get("HTTP_AUTHORIZATION", ""))):
                return "401 Unauthorized", "the bearer token is missing or wrong"
            if asked.get("PATH_INFO") != "/alerts":
                return "404 Not Found", "send alerts to /alerts"
            if asked.get("REQUEST_METHOD") != "POST":
                return "405 Method Not Allowed", "send alerts by POST"
            length = str(asked.get("CONTENT_LENGTH") or "")
            if not length.isdecimal() or int(length) > MOST_BYTES:
                return "413 Content Too Large", f"write a Content-Length of at most {MOST_BYTES}"
            alerts = parsed(asked["wsgi.input"].read(int(length)))
            decisions = self._take(alerts)
        except ValueError as error:
            return "400 Bad Request", str(error)
        except (ProgramError, OSError) as error:
            LOG.error("%s", error)
            self._failed(error)
            return "503 Service Unavailable", "nothing was launched for some of it; send it again"
        return "200 OK", ", ".join(f"{one.alert.name}: {one.outcome}" for one in decisions) or "no alerts"

    def _known(self, given: str) -> bool:
        kind, _, token = given.partition(" ")
        tokens = [line.strip() for line in self._token_file.read_text(encoding="utf-8").splitlines()]
        right = [
            hmac.compare_digest(token.strip().encode(), each.encode())
            for each in tokens
            if len(each) >= _LEAST_TOKEN
        ]
        return kind.lower() == "bearer" and any(right)


def parsed(body: bytes) -> list[Alert]:
    """Return the alerts of a request.

    Raises:
        ValueError: it is no message of Alertmanager's webhook.
    """
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        raise ValueError("the body is not JSON") from None
    listed = data.get("alerts") if isinstance(data, dict) else None
    if not isinstance(listed, list) or len(listed) > MOST_ALERTS:
        raise ValueError(f"write 'alerts', a list of at most {MOST_ALERTS}, as Alertmanager's webhook does")
    return [_alert(one) for one in listed]


def _alert(one: t.Any) -> Alert:
    labels = one.get("labels") if isinstance(one, dict) else None
    if not isinstance(labels, dict) or not all(isinstance(value, str) for value in labels.values()):
        raise ValueError("an alert has no labels that are texts")
    if one.get("status") not in ("firing", "resolved"):
        raise ValueError("the status of an alert is firing or resolved")
    return Alert(_name(labels.get("alertname", "")), one["status"] == "firing", labels)


def _name(said: str) -> str:
    """Return a name as a line of the log can hold it.

    It is repeated in the log and in the answer, so it makes no second line there, and no half of a pair of
    UTF-16 that cannot be sent. What is altered is no name that a reaction can have.
    """
    seen = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in said)
    return seen if len(seen) <= _LONGEST_NAME else f"{seen[:_LONGEST_NAME]}…"
