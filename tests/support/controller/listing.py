# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Lists of the stand-in: filters as Django's field lookups, order, pages."""

from __future__ import annotations

import re
import typing as t
import urllib.parse
from collections.abc import Callable, Mapping

from tests.support.controller.kinds import KINDS, UNIFIED
from tests.support.controller.store import Content, Refusal, Store

PAGE, MOST = 25, 200
_LOOKUPS: t.Final[Mapping[str, Callable[[t.Any, str], bool]]] = {
    "exact": lambda found, text: str(found) == text,
    "iexact": lambda found, text: str(found).lower() == text.lower(),
    "contains": lambda found, text: text in str(found),
    "icontains": lambda found, text: text.lower() in str(found).lower(),
    "startswith": lambda found, text: str(found).startswith(text),
    "endswith": lambda found, text: str(found).endswith(text),
    "regex": lambda found, text: re.search(text, str(found)) is not None,
    "in": lambda found, text: str(found) in text.split(","),
    "gt": lambda found, text: float(found) > float(text),
    "lt": lambda found, text: float(found) < float(text),
    "isnull": lambda found, text: (found is None) == (text.lower() in ("1", "true")),
}


def page(
    store: Store, path: str, found: list[tuple[str, Content]], query: list[tuple[str, str]], url: str
) -> Content:
    """Return one page of a list.

    Args:
        store: of all objects.
        path: of the kind, for what its fields are.
        found: kind and object of each.
        query: of the request.
        url: path of the request.
    """
    wanted = dict(query)
    number, size = int(wanted.pop("page", 1)), min(int(wanted.pop("page_size", PAGE)), MOST)
    order = wanted.pop("order_by", wanted.pop("order", "id"))
    wanted.pop("search", None)
    kept = [one for one in found if _fits(store, path, *one, wanted)]
    field = order.lstrip("-")
    kept.sort(
        key=lambda one: str(one[1].get(field, "")) if field != "id" else int(one[1]["id"]),
        reverse=order[0] == "-",
    )
    start = (number - 1) * size
    if number > 1 and start >= len(kept):
        raise Refusal(404, {"detail": "Invalid page."})
    plain = {key: value for key, value in query if key != "page"}

    def at(other: int) -> str:
        return f"{url}?{urllib.parse.urlencode({**plain, 'page': other})}"

    return {
        "count": len(kept),
        "next": at(number + 1) if start + size < len(kept) else None,
        "previous": at(number - 1) if number > 1 else None,
        "results": [store.shown(kind, there) for kind, there in kept[start : start + size]],
    }


def _fits(store: Store, path: str, kind: str, there: Content, wanted: Mapping[str, str]) -> bool:
    either = [
        _matches(store, path, kind, there, key.removeprefix("or__"), text)
        for key, text in wanted.items()
        if key.startswith("or__")
    ]
    every = (
        _matches(store, path, kind, there, key.removeprefix("not__"), text) != key.startswith("not__")
        for key, text in wanted.items()
        if not key.startswith("or__")
    )
    return all(every) and (any(either) or not either)


def _matches(store: Store, path: str, kind: str, there: Content, key: str, text: str) -> bool:
    *names, last = key.split("__")
    lookup = last if last in _LOOKUPS and names else "exact"
    names = names if lookup == last and names else [*names, last]
    value: t.Any = there
    known = {"id", "type", *KINDS[kind].fields, *there}
    for position, name in enumerate(names):
        if position == 0:
            if name not in known:
                if path == "unified_job_templates" and any(name in KINDS[each].fields for each in UNIFIED):
                    return False
                words = KINDS[kind].words.replace(" ", "")
                raise Refusal(400, {"detail": f"{words} has no field named '{name}'"})
            value = KINDS[kind].type if name == "type" else there.get(name)
            reference = KINDS[kind].references.get(name)
        else:
            if not reference or value is None:
                return False
            if reference == "unified_job_templates":
                reference = store.path_of_unified(value)
            other = store.find(reference, value)
            value = other.get(name)
            reference = KINDS[reference].references.get(name)
    if lookup == "exact" and isinstance(value, bool):
        return value == (text.lower() in ("1", "true"))
    if value is None and lookup == "exact":
        return text in ("null", "None", "")
    return _LOOKUPS[lookup](value, text)
