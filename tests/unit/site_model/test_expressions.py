# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Expressions of an inventory run no programs that nobody allowed, and end."""

from __future__ import annotations

import signal
import threading
import time
import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site import expressions
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.expressions import (
    ALLOWED,
    TooLong,
    in_time,
    refused_lookup,
)
from hypothesis import given
from hypothesis import strategies as st

from .conftest import Example

ALL = "group_vars/all.yml"


@pytest.mark.parametrize(
    ("value", "allowed", "refused"),
    [
        ("{{ lookup('pipe', 'id') }}", "", "pipe"),
        ('{{ query("ansible.builtin.pipe", "id") | first }}', "", "ansible.builtin.pipe"),
        ("{{ q('url', 'http://x') }}", "", "url"),
        ({"a": ["{{ lookup( 'lines', 'id' ) }}"]}, "", "lines"),
        ({"{{ lookup('pipe', 'id') }}": 1}, "", "pipe"),
        ("{{ lookup('pi' ~ 'pe', 'id') }}", "", "a lookup whose name is computed"),
        ("{{ lookup(user_x, 'id') }}", "", "a lookup whose name is computed"),
        ("{{ lookup('pipe', 'id') }}", "pipe, url", ""),
        ("{{ lookup('ansible.builtin.pipe', 'id') }}", "pipe", ""),
        ("{{ lookup('pipe', 'id') }}", "url", "pipe"),
        ("{{ lookup('file', 'key.pub') }}", "", ""),
        ("{{ lookup('env', 'HOME') }}", "", ""),
        ("{{ lookup('ansible.builtin.password', '/dev/null') }}", "", ""),
        ("{{ lookup('password', '/dev/null length=9') }}", "", ""),
        ("{{ lookup('password', 'kept/there') }}", "", "password"),
        ("{{ lookup('password', user_file) }}", "", "password"),
        ("{{ lookup('ansible.builtin.password', 'kept') }}", "password", ""),
        ("see lookup('pipe', 'id') in the docs", "", ""),
        (7, "", ""),
        (None, "", ""),
    ],
)
def test_which_lookups_are_refused(value: t.Any, allowed: str, refused: str) -> None:
    assert refused_lookup(value, {ALLOWED: allowed} if allowed else {}) == refused


@given(st.text(max_size=80))
def test_any_text_is_looked_through(text: str) -> None:
    assert isinstance(refused_lookup("{{" + text, {}), str)


def test_no_program_is_started(example: Example) -> None:
    mark = example.folder.parent / "mark"
    example.append(ALL, f"site_bare_metal_cloud: \"{{{{ lookup('pipe', 'touch {mark}; echo x') }}}}\"\n")
    (problem,) = (each for each in example.problems() if "pipe" in str(each))
    assert "uses pipe" in problem.message and f"{ALLOWED}=pipe" in problem.remedy
    assert problem.line == example.line(ALL, "lookup('pipe'")
    assert not mark.exists()


def test_it_is_one_problem_for_all_hosts_and_allowed_by_name(example: Example) -> None:
    example.replace(ALL, "site_wan_mtu: 1400", "site_wan_mtu: \"{{ lookup('pipe', 'echo 1400') | int }}\"")
    assert len(example.problems()) == 1
    example.environment[ALLOWED] = "pipe"
    assert example.problems() == []


def test_an_expression_without_end(example: Example, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expressions, "SECONDS", 0.2)
    loop = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}1400"
    example.replace(ALL, "site_wan_mtu: 1400", f'site_wan_mtu: "{loop}"')
    (problem,) = example.problems()
    assert "to compute" in problem.message
    assert problem.line == example.line(ALL, "range(99999)")


def test_a_timer_of_somebody_else_is_left_alone() -> None:
    signal.setitimer(signal.ITIMER_REAL, 600)
    try:
        with in_time(0.001):
            time.sleep(0.05)
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 500
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    with pytest.raises(TooLong), in_time(0.01):
        time.sleep(60)
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


def test_another_thread_has_no_limit() -> None:
    ended = []

    def work() -> None:
        with in_time(0.001):
            time.sleep(0.05)
        ended.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert ended


def test_which_values_are_expressions(example: Example) -> None:
    """Of groups without hosts and of hosts too; what is inside of others, once each."""
    example.append(
        ALL, "user_a: '{{ site_name }}-x'\nuser_b: [1, {c: '{% if true %}y{% endif %}'}]\nuser_d: plain\n"
    )
    example.append("host_vars/gpu-a-01.yml", "user_e: '{{ inventory_hostname }}'\n")
    example.append("group_vars/haproxy.yml", f"user_long: '{{{{ \"{'z' * 500}\" }}}}'\n")
    before = len(example.site().expressions)
    said = [text.partition("/inventory/")[2] for text in example.site().expressions]
    line = example.line(ALL, "user_a")
    assert f"{ALL}:{line}: user_a: {{{{ site_name }}}}-x" in said
    assert f"{ALL}:{line + 1}: user_b: {{% if true %}}y{{% endif %}}" in said
    assert any(text.endswith("user_e: {{ inventory_hostname }}") for text in said)
    (long,) = (text for text in said if "user_long" in text)
    assert len(long) < 200
    assert not any("user_d" in text for text in said)
    assert before == len(said)
