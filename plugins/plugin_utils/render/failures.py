# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Turns what went wrong while rendering into a problem with the template's file and line."""

from __future__ import annotations

import traceback
from pathlib import Path

import jinja2
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.artifacts_index import ArtifactsIndexError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.mirror import message_and_remedy
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import Problem


def problem_from(error: Exception, template: Path, path: str) -> Problem:
    """Return the problem behind an exception.

    Args:
        error: what rendering raised. Jinja rewrites tracebacks: frames name templates and their lines.
        template: the outermost template.
        path: what was rendered for whom.
    """
    file, line = str(template), 0
    if isinstance(error, jinja2.TemplateSyntaxError):
        return Problem(error.filename or file, error.lineno, path, _clean(error), "correct the template")
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename.endswith(".j2"):
            file, line = frame.filename, frame.lineno or 0
    if isinstance(error, jinja2.UndefinedError):
        return Problem(
            file, line, path, _clean(error), "set the variable, or correct the name in the template"
        )
    if isinstance(error, jinja2.TemplateNotFound):
        return Problem(file, line, path, f"there is no template {error}", "correct its name")
    remedy = getattr(error, "remedy", "")
    if remedy:  # a PkiError: a sentence and a sentence
        message = str(getattr(error, "message", error)).rstrip(".")
        return Problem(file, line, path, message, str(remedy).rstrip("."))
    if isinstance(error, ArtifactsIndexError):  # its last clause is a command
        return Problem(file, line, path, *message_and_remedy(error))
    return Problem(file, line, path, f"{type(error).__name__}: {_clean(error)}", "correct the template")


def _clean(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".")
