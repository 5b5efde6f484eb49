# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What an operation and its arguments are, as they are declared."""

from __future__ import annotations

import dataclasses
import typing as t

PREFIX = "ironspan_"
"""Variables that begin so are arguments of operations. Those of a run itself begin with ``__ironspan_``."""

Type = t.Literal["str", "bool", "int", "time", "file", "files", "list", "hosts"]
Consent = t.Literal["", "steps", "always"]
Compared = t.Literal["all", "none", "named", "targets", "others"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One thing that an operation can be asked for.

    Args:
        name: of the variable, which begins with ``ironspan_``. One name has one meaning in all operations.
        what: what it is, for people: a clause without a full stop.
        type: ``time`` is seconds or a number with s, m or h behind it; ``file`` is a path on the controller;
            ``list``, ``hosts`` and ``files`` (of the controller) are lists, or texts with commas.
        choices: the only values, also of each item of a list; empty for any.
        pattern: regular expression that the whole text must match; empty for any.
        example: a value that the pattern takes, for messages.
        default: what holds when nothing is said; None when that is decided by the operation.
        least: smallest number, of a time in seconds.
        most: largest number, of a time in seconds.
        required: the operation is refused without it.
        secret: its value is not shown, and never part of a plan.
        of_run: it says how a playbook is run and not what it does, so a plan does not fix it.
        formerly: the name that it had before; it works for one release, with a warning.
        option: the word of the command line's option, if not the variable's own; ``HOSTS`` and the like, in
            capitals, stand for a positional argument.
        short: the letter of a short option, such as ``o`` for ``-o``.
        words: what the items of a list are called that has just so many.
        all_when_empty: nothing said means every one that there is. A survey of a controller insists on an
            answer where the operation changes something: it is left empty too easily.
    """

    name: str
    what: str
    type: Type = "str"
    choices: tuple[str, ...] = ()
    pattern: str = ""
    example: str = ""
    default: t.Any = None
    least: int | None = None
    most: int | None = None
    required: bool = False
    secret: bool = False
    of_run: bool = False
    formerly: str = ""
    option: str = ""
    short: str = ""
    words: tuple[str, ...] = ()
    all_when_empty: bool = False

    @property
    def word(self) -> str:
        """The word of the command line: ``force-drain`` for ``ironspan_force_drain``."""
        return self.option or self.name.removeprefix(PREFIX).replace("_", "-")

    @property
    def positional(self) -> bool:
        """Whether the command line takes it without an option's name."""
        return self.option.isupper()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One thing that people ask of a site. Its playbook has the same name.

    Args:
        name: of its playbook, without the suffix.
        summary: what it does: a clause without a full stop.
        details: what else there is to know, in sentences.
        command: the words of the command line; empty when it is ``apply NAME``.
        hosts: which hosts it contacts, for people; empty when only the controller and the API work.
        arguments: what it can be asked for.
        changes: whether it changes anything.
        consent: ``steps`` when those that cannot be undone need consent, ``always`` when it does.
        limit: whether ``--limit`` may leave hosts out.
        slices: whether it runs in a job that a controller has sliced.
        steps: actions of the steps that it may have; each play names the steps that it performs. An operation
            that has some has a module of its name in ``operations``.
        said: actions of steps that only say what is left to people; no play performs them.
        compared: hosts whose documents a plan compares: ``named`` by the operator, ``targets`` of the steps,
            ``others``: targets that nobody named.
        remote: kinds of remote things that it is about; such an operation can be planned without steps.
        cluster: whether a plan of it compares the cluster.
        only_named: no other host is contacted, so only documents of the named ones are rendered.
        groups: whether groups can be named instead of hosts.
        grouped: whether hosts are put into groups by their steps, because plays are about these.
        any_order: whether hosts may come in another order than in the plan.
        new_hosts: whether hosts come that nothing of ours is on yet.
        check_mode: whether check mode says what it would do; without, a controller has no template for it.
        minutes: how long it takes on a site of some hundred hosts, an estimate.
        approval: whether somebody else has to approve it where a controller runs it; so it is, too, where
            steps need consent.
    """

    name: str
    summary: str
    details: str = ""
    command: tuple[str, ...] = ()
    hosts: str = ""
    arguments: tuple[Argument, ...] = ()
    changes: bool = True
    consent: Consent = ""
    limit: bool = True
    slices: bool = False
    steps: tuple[str, ...] = ()
    said: tuple[str, ...] = ()
    compared: Compared = "all"
    remote: tuple[str, ...] = ()
    cluster: bool = True
    only_named: bool = False
    groups: bool = False
    grouped: bool = False
    any_order: bool = False
    new_hosts: bool = False
    check_mode: bool = True
    minutes: int = 10
    approval: bool = False

    @property
    def approved(self) -> bool:
        """Whether a controller runs it only after somebody else than the launcher has approved it."""
        return self.approval or bool(self.consent)

    @property
    def planned(self) -> bool:
        """Whether it can be planned, beside the operation ``site``."""
        return bool(self.steps or self.remote)

    def argument(self, name: str) -> Argument | None:
        """Return an argument by the variable's name, None when the operation has none such."""
        return next((entry for entry in self.arguments if entry.name == name), None)
