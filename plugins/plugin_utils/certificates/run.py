# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The report and the state of authorities from inside a run: the site, its store, what hosts answered."""

from __future__ import annotations

import datetime

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.certificates import collected, observe
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.certificates.found import (
    Authorities,
    of_host,
    of_store,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.certificates.gate import Observed
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.certificates.report import Report, problems_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import Store
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.generations import ROTATABLE
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Site


def report(site: Site, store: Store, days: int, now: datetime.datetime | None = None) -> Report:
    """Return the report over what the hosts of this run answered.

    Args:
        site: the site.
        store: its PKI store.
        days: what ends within as many days is due.
        now: for tests.
    """
    answers = collected.answers()
    authorities = Authorities(store)
    generations = {name: store.generations(name) for name in ROTATABLE}
    found = of_store(authorities, {name: state.trusted for name, state in generations.items()})
    for host, answer in answers.items():
        found += of_host(host, answer["certificates"], authorities)
    problems = problems_of(
        {host: host in answers for host in site.hosts},
        {host: answer["unreadable"] for host, answer in answers.items()},
        found,
        generations,
    )
    moment = now or datetime.datetime.now(datetime.UTC)
    return Report(site.name, moment, days, found, problems, generations)


def observed(site: Site, store: Store) -> dict[str, Observed | None]:
    """Return what is known of every host, by what the hosts of this run answered."""
    return observe.observe(site, Authorities(store), collected.answers())
