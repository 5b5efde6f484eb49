# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The documentation as a site: ``python -m tools.site [FOLDER]``. mkdocs-material, from the same pages.

The navigation is the table of guides in docs/index.md, which is sorted by task, the reference and the roles.
A link that leads nowhere fails.
"""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import typing as t

import yaml

from tools.locked import environment

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
_ROW = re.compile(r"^\| ([A-Za-z ]+) \| (.+) \|$")
_LINK = re.compile(r"\[([^\]]+)\]\(([A-Za-z0-9_/.-]+\.md)[^)]*\)")
_OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./([^)#]+)(#[^)]*)?\)")
_TEMPLATE = re.compile(r"\[([^\]]+)\]\([a-z_./]+\.j2\)")
_ROLE = re.compile(r"roles/([a-z_]+)/README\.md")
SETTINGS: t.Final[dict[str, t.Any]] = {
    "site_name": "ironspan",
    "site_description": "Hybrid GPU clusters, from bare metal to tested workers.",
    "use_directory_urls": False,
    "strict": True,
    "theme": {
        "name": "material",
        # Nothing is fetched from elsewhere when somebody reads it.
        "font": False,
        "features": [
            "navigation.indexes",
            "navigation.top",
            "search.highlight",
            "content.code.copy",
            "toc.follow",
        ],
        "palette": [
            {"media": "(prefers-color-scheme: light)", "scheme": "default"},
            {"media": "(prefers-color-scheme: dark)", "scheme": "slate"},
        ],
    },
    "plugins": ["search"],
    "markdown_extensions": ["tables", "attr_list", {"toc": {"permalink": True}}, "pymdownx.superfences"],
    "validation": {
        "nav": {"omitted_files": "warn", "not_found": "warn"},
        "links": {"not_found": "warn", "anchors": "warn", "unrecognized_links": "warn"},
    },
}


def navigation(index: str) -> list[dict[str, t.Any]]:
    """Return the navigation: each row of the table of guides, then the reference and the roles.

    Args:
        index: text of docs/index.md.
    """
    made: list[dict[str, t.Any]] = [{"Overview": "index.md"}]
    seen = {"index.md"}
    for line in index.splitlines():
        if row := _ROW.match(line):
            pages = [(title, page) for title, page in _LINK.findall(row[2]) if page not in seen]
            seen.update(page for _, page in pages)
            if pages:
                made.append({_title(row[1]): [{_title(title): page} for title, page in pages]})
    reference = [
        {_title(path.stem): f"reference/{path.name}"} for path in sorted((DOCS / "reference").glob("*.md"))
    ]
    made.append({"Reference": reference})
    roles = sorted(path.parent.name for path in ROOT.glob("roles/*/README.md"))
    made.append({"Roles": [{name: f"roles/{name}.md"} for name in roles]})
    return made


def _title(text: str) -> str:
    plain = text.replace("`", "")
    return plain[:1].upper() + plain[1:]


def page(text: str, folder: str) -> str:
    """Return a page whose links out of docs/ lead to pages of the site, or are plain text.

    Args:
        text: of the page.
        folder: of the site that it lies in, "" or ``reference/`` or ``roles/``.
    """
    up = "../" if folder else ""

    def led(match: re.Match[str]) -> str:
        shown, path, anchor = match[1], match[2], match[3] or ""
        while path.startswith("../"):
            path = path.removeprefix("../")
        inside = path.removeprefix("docs/")
        if role := _ROLE.fullmatch(f"roles/{path.removeprefix('roles/')}"):
            inside = f"roles/{role[1]}.md"
        elif not (DOCS / inside).is_file():
            return shown
        return f"[{shown}]({up}{inside}{anchor})"

    return _OUTSIDE.sub(led, _TEMPLATE.sub(r"\1", text))


def written(folder: pathlib.Path) -> pathlib.Path:
    """Write the site's sources and settings into a folder; return the settings' file."""
    pages = folder / "pages"
    for path in DOCS.rglob("*"):
        if path.is_file():
            target = pages / path.relative_to(DOCS)
            target.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix == ".md":
                inner = "reference/" if path.parent != DOCS else ""
                target.write_text(page(path.read_text(encoding="utf-8"), inner), encoding="utf-8")
            else:
                shutil.copy(path, target)
    for path in ROOT.glob("roles/*/README.md"):
        target = pages / "roles" / f"{path.parent.name}.md"
        target.parent.mkdir(exist_ok=True)
        target.write_text(page(path.read_text(encoding="utf-8"), "roles/"), encoding="utf-8")
    settings = folder / "mkdocs.yml"
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    content = {**SETTINGS, "docs_dir": "pages", "nav": navigation(index)}
    settings.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return settings


def main() -> int:
    """Build the site; return mkdocs' exit code."""
    target = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "site").resolve()
    programs = environment("site", "half a minute")
    with tempfile.TemporaryDirectory() as folder:
        settings = written(pathlib.Path(folder))
        # It advertises its successor otherwise.
        quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
        done = subprocess.run(
            [programs / "mkdocs", "build", "--strict", "--config-file", settings, "--site-dir", target],
            env=quiet,
            check=False,
            # --quiet would keep warnings from counting.
            stderr=subprocess.PIPE,
            text=True,
        )
    if done.returncode:
        print(*(line for line in done.stderr.splitlines() if not line.startswith("INFO")), sep="\n")
    else:
        print(f"{target}/index.html")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
