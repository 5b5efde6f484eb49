# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Files of our own inventory plugins: what Ansible would pass over is named with its line."""

from __future__ import annotations

import pytest
import yaml
from ansible.plugins.doc_fragments.inventory_cache import ModuleDocFragment
from ansible_collections.ironspan.hybrid.plugins.inventory import azure, ironic
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site import plugin_file

from .conftest import Example

PLUGIN = "plugin: ironspan.hybrid.azure\n"
WRONG = (
    (
        "azure.yml",
        f"{PLUGIN}regions: [westeurope]",
        "is no option of ironspan.hybrid.azure",
        "write it in group_vars",
    ),
    ("azure.yml", f"{PLUGIN}azure_region: westeurope", "is no option of", "write it in group_vars"),
    ("azure.yml", f"{PLUGIN}cache_timout: 300", "is no option of", "write cache_timeout"),
    (
        "azure.yml",
        f"{PLUGIN}cache: sometimes",
        "'sometimes' is neither true nor false",
        "write true or false",
    ),
    ("azure.yml", f"{PLUGIN}cache_timeout: 5m", "'5m' is no number of seconds", "300"),
    (
        "azure.yml",
        "plugin: ironspan.hybrid.azur",
        "there is no plugin ironspan.hybrid.azur",
        "ironspan.hybrid.azure",
    ),
    ("azure.yml", "plugin: azure", "there is no plugin azure", "write ironspan.hybrid.azure"),
    ("azure.yml", "plugin: ironspan.hybrid.ironic", "end with ironic.yml only", "call the file ironic.yml"),
    ("cloud.yml", PLUGIN.strip(), "end with azure.yml only", "call the file azure.yml"),
    ("ironic.yml", "plugin: ironspan.hybrid.ironic\nexpectd: a.csv", "is no option of", "write expected"),
)


@pytest.mark.parametrize(("file", "text", "says", "remedy"), WRONG)
def test_what_nobody_would_read(example: Example, file: str, text: str, says: str, remedy: str) -> None:
    (example.folder / file).write_text(f"{text}\n")
    found = [problem for problem in example.problems() if problem.file == str(example.folder / file)]
    assert [problem.line for problem in found] == [len(text.splitlines())], found
    assert says in found[0].message
    assert remedy in found[0].remedy


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("azure.yml", PLUGIN),
        (
            "weu-azure.yaml",
            f"{PLUGIN}cache: yes\ncache_plugin: jsonfile\ncache_timeout: 300\n",
        ),
        ("ironic.yml", "plugin: ironspan.hybrid.ironic\nexpected: ../a.csv\ncloud: racks\n"),
        ("nb.yml", "plugin: netbox.netbox.nb_inventory\napi_endpoint: https://netbox.example\n"),
    ],
)
def test_what_is_right(file: str, text: str) -> None:
    root = yaml.compose(text)
    assert root is not None
    assert list(plugin_file.wrong_plugin(root, file)) == []


def test_options_are_those_of_the_documentation() -> None:
    shared = yaml.safe_load(ModuleDocFragment.DOCUMENTATION)["options"]
    for name, plugin in (("azure", azure), ("ironic", ironic)):
        documented = yaml.safe_load(plugin.DOCUMENTATION)
        options = {
            *documented["options"],
            *(shared if "extends_documentation_fragment" in documented else ()),
        }
        assert {*plugin_file.OPTIONS[name]} == options
