# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a program tells of itself over HTTP: ``/metrics`` for Prometheus, ``/healthz`` whether it is ready.

Every program has these, behind its prefix:

* ``process_*``: since when it runs, what it uses;
* ``errors_total{kind}``: failures;
* ``last_success_timestamp_seconds{step}`` and ``deadline_seconds{step}``, for each step that it repeats;
* ``ready``: 1 while each of these steps was done with success within its deadline.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
import typing as t
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    ProcessCollector,
    disable_created_metrics,
    make_wsgi_app,
)

from ironspan.program.errors import KeyMissing, LeaseLost, ProgramError, Refused, ServiceError
from ironspan.program.http import Server
from ironspan.program.listen import Listen

Kinds = Sequence[tuple[type[BaseException], str]]
KINDS: Kinds = (
    (LeaseLost, "lease"),
    (Refused, "refused"),
    (ServiceError, "service"),
    (KeyMissing, "key"),
    (ProgramError, "other"),
    (OSError, "system"),
)
"""Errors and what they are counted as; the first that fits counts, ``other`` where none does."""


@dataclass(frozen=True, slots=True)
class _Watched:
    age: Callable[[], float]
    deadline: float

    def late(self) -> str:
        """Return what is wrong with it, empty when nothing is."""
        age = self.age()
        if age <= self.deadline:
            return ""
        done = "never done with success" if math.isinf(age) else f"last done {age:.0f} s ago"
        return f"{done}, wanted every {self.deadline:.0f} s"


class Metrics:
    """A program's metrics, in a registry of their own.

    Args:
        prefix: of all names, for example ``ironspan_kms``.
        kinds: of errors.
    """

    def __init__(self, prefix: str, kinds: Kinds = KINDS) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.prefix = prefix
        self.registry = CollectorRegistry()
        self._kinds = kinds
        self._steps: dict[str, _Watched] = {}
        self._lock = threading.Lock()
        ProcessCollector(namespace=prefix, registry=self.registry)
        self.errors = self.counter("errors", "Failures.", "kind")
        for kind in (*(kind for _, kind in kinds), "other"):
            self.errors.labels(kind)
        self._success = self.gauge(
            "last_success_timestamp_seconds", "When a step was last done with success; 0 for never.", "step"
        )
        self._deadline = self.gauge("deadline_seconds", "How old that may be.", "step")
        self.gauge("ready", "1 while no step is late.").set_function(lambda: float(not self.late()))

    def gauge(self, name: str, text: str, *labels: str) -> Gauge:
        """Return a new gauge."""
        return Gauge(f"{self.prefix}_{name}", text, labels, registry=self.registry)

    def counter(self, name: str, text: str, *labels: str) -> Counter:
        """Return a new counter; ``_total`` is added to its name."""
        return Counter(f"{self.prefix}_{name}", text, labels, registry=self.registry)

    def failed(self, error: BaseException) -> str:
        """Count a failure and return its kind."""
        kind = next((kind for base, kind in self._kinds if isinstance(error, base)), "other")
        self.errors.labels(kind).inc()
        return kind

    def watch(self, step: str, age: Callable[[], float], deadline: float) -> None:
        """Let the program be ready only while a step is not late.

        Args:
            step: its name.
            age: seconds since it was last done with success, infinite for never.
            deadline: how many of them are too many.
        """
        with self._lock:
            self._steps[step] = _Watched(age, deadline)
        self._deadline.labels(step).set(deadline)
        self._success.labels(step).set_function(lambda: max(0.0, time.time() - age()))

    def forget(self, step: str) -> None:
        """Ask for a step no more: it is not this program's task now."""
        with self._lock:
            self._steps.pop(step, None)
        for gauge in (self._success, self._deadline):
            with contextlib.suppress(KeyError):
                gauge.remove(step)

    def late(self) -> list[str]:
        """Return a line for each step that is late; the program is ready when there is none."""
        with self._lock:
            steps = sorted(self._steps.items())
        return [f"{name}: {problem}" for name, step in steps if (problem := step.late())]

    @contextlib.contextmanager
    def serving(self, at: Listen) -> Iterator[int]:
        """Answer while the block runs.

        Yields:
            The port, which is chosen by the system where ``at`` has 0.

        Raises:
            ProgramError: the address cannot be listened on, or the certificate cannot be used.
        """
        try:
            server = Server(at)
        except OSError as error:  # what is wrong with a certificate is one, too
            raise ProgramError(
                f"Metrics cannot be served on {at.address}, port {at.port}: {error.strerror or error}.",
                "Set metrics.address and metrics.port in the settings to what is free on this host.",
            ) from error
        server.set_app(self._answer)
        thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            server.server_close()

    def _answer(self, asked: t.Any, start: t.Any) -> t.Iterable[bytes]:
        if asked["PATH_INFO"] != "/healthz":
            return t.cast("t.Iterable[bytes]", make_wsgi_app(self.registry)(asked, start))
        late = self.late()
        start(
            "503 Service Unavailable" if late else "200 OK", [("Content-Type", "text/plain; charset=utf-8")]
        )
        return ["".join(f"{line}\n" for line in late or ["ok"]).encode()]
