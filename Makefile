# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
# Everything a developer or a first-time user runs. `make help` lists it.

VENV := .venv
BIN := $(VENV)/bin
PYTHON := $(BIN)/python
IRONSPAN := $(BIN)/ironspan
INSTALLED := $(VENV)/.installed.lock
SOURCE ?= auto
# Plugins are checked by the path they are imported by: seen from the root, each would be two modules.
COLLECTION := collections/ansible_collections/ironspan/hybrid

# What the user tells Ansible in other projects says nothing about this one; `ironspan` passes over it by itself.
unexport $(filter ANSIBLE_%,$(filter-out ANSIBLE_NOCOLOR,$(.VARIABLES)))
# Programs start by the hundred in the tests: compiled once, each is a fifth cheaper (validate: 3.3 CPU-s, 2.6 with it).
unexport PYTHONDONTWRITEBYTECODE
# Ansible and its linters refuse a locale that is not installed, or not UTF-8.
export LC_ALL := C.UTF-8
# Ansible and the linters look for their siblings (ansible-playbook, ansible-galaxy) on the PATH.
export PATH := $(CURDIR)/$(BIN):$(PATH)

.DEFAULT_GOAL := help
.PHONY: help lab lab-down test lint unit used-home integration long durations random fuzz refuse checkov browser simulate cilium conformance cni-migrate bench docs site lock venv packages artifacts all-artifacts metal-images virtual-servers molecule clean

help:
	@echo 'make lab        a two-site Kubernetes cluster on this machine (root, Linux)'
	@echo '                AZURE=estate makes its Azure side from an empty subscription of the emulated Azure, SIZE=tiny as one machine'
	@echo 'make lab-down   remove it'
	@echo 'make test       everything: lint, types, unit tests, lab tests, budgets (what .ci/run needs)'
	@echo 'make lint | unit | used-home | integration | molecule   parts of it (used-home: the unit tests with foreign'
	@echo '                caches, settings, locale, time zone, umask and proxy)'
	@echo 'make long       the scenarios of which make test runs a short version (pytest -m long)'
	@echo 'make durations  write tests/durations.yml from the last make test: the order of the files, and what they may take'
	@echo 'make random     random workload, faults, backups and restores: RUNS=1000 SEED=0 by default'
	@echo 'make fuzz       changed bytes for every reader of what others wrote: MINUTES=30 each by default; findings become tests'
	@echo 'make refuse     drawn mistakes in drawn sites, each refused at its line: CASES=50000 GOOD=5000 by default; goes on where it ended'
	@echo 'make checkov    checkov over the deployment of an estate in Azure (docs/azure.md); installs it first, 2 minutes'
	@echo 'make browser    all pages in Chromium, with screenshots in build/pages (docs/reports.md)'
	@echo 'make simulate   a control plane with nodes of kwok, measured: NODES=1000 by default'
	@echo 'make cilium     a cluster with Cilium, its policies and what becomes of them without agents; builds Cilium first,'
	@echo '                after which make test runs a short version too'
	@echo 'make conformance  Kubernetes own conformance tests, by default and hardened; builds them first, after which make test'
	@echo '                runs a few of them, too'
	@echo 'make cni-migrate  a running cluster is moved from flannel to Cilium while a workload is asked; builds Cilium first'
	@echo 'make metal-images  the disk image of servers and the ramdisk of Ironic'"'"'s agent, from Debian packages (docs/images.md)'
	@echo 'make virtual-servers  a server that is off becomes a Ready worker, through Ironic, on this machine (docs/lab.md)'
	@echo 'make bench      measure the budgets and rewrite docs/benchmarks.md'
	@echo 'make docs       regenerate role READMEs and docs/reference'
	@echo 'make site       the documentation as a site with search, in build/site'
	@echo 'make lock       pin the Python dependencies again, and the wheels of programs for hosts'
	@echo 'make clean      remove the virtual environment and the caches in this folder'

## Setting up

venv: $(INSTALLED)

$(INSTALLED): requirements.lock pyproject.toml tools/find-python
	@python=$$(tools/find-python) && echo "== Python: $$python" && \
	    { [ -x $(PYTHON) ] || "$$python" -m venv $(VENV); }
	@echo '== Python packages (requirements.lock, checked by hash) into $(VENV)'
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@cp requirements.lock $@

packages:
	@tools/debian-packages

artifacts: venv packages
	@echo '== Artefacts and images (source: $(SOURCE))'
	@$(IRONSPAN) artifacts build --source $(SOURCE)

# With the versions that upgrades go to, and Ironic: what the tests need, 12 minutes more from nothing.
all-artifacts: venv packages
	@echo '== Artefacts and images, those to upgrade to, and Ironic (source: $(SOURCE))'
	@$(IRONSPAN) artifacts build --source $(SOURCE) --set upgrade --set bare-metal

# What bare metal needs beside: docs/images.md. 4 minutes from nothing, as root.
metal-images: venv packages
	@echo '== Images of whole systems'
	@$(IRONSPAN) artifacts build --source $(SOURCE) --set server-images

# Virtual servers, deployed by Ironic with these images: docs/lab.md.
virtual-servers: metal-images
	@tools/debian-packages servers
	@$(IRONSPAN) artifacts build --source $(SOURCE) --set bare-metal
	@$(PYTHON) -m pytest -m long -rA tests/integration/test_virtual_servers.py

lock: venv
	$(PYTHON) -m uv pip compile --quiet --upgrade --extra dev --generate-hashes --universal --python-version 3.12 \
	    --no-emit-index-url --custom-compile-command 'make lock' --output-file requirements.lock pyproject.toml
	$(IRONSPAN) artifacts pin --wheels etcd-backup encryption-kms gpud gpu-repair events ironic agent bmc-emulator

## The lab

# AZURE=estate: the Azure side is made by `ironspan azure` in an empty, emulated subscription (docs/lab.md); SIZE=tiny is
# one machine there, and one worker.
SIZE ?=
ifeq ($(AZURE),estate)
lab: artifacts
	@$(PYTHON) -m tools.lab_estate $(if $(SIZE),--size $(SIZE))
	@echo 'Remove everything:     make lab-down'
else
lab: artifacts
	@echo '== Lab'
	@$(IRONSPAN) lab up --etcd-backup
	@echo '== Cluster'
	@$(IRONSPAN) apply
	@echo '== State'
	@$(IRONSPAN) status
	@echo
	@echo 'A shell on a host:     $(IRONSPAN) lab ssh rack-1'
	@echo 'Run it again:          $(IRONSPAN) apply            (or $(BIN)/ansible-playbook playbooks/site.yml)'
	@echo 'Prove it works:        $(IRONSPAN) verify'
	@echo 'Remove everything:     make lab-down'
endif

lab-down: venv
	@$(IRONSPAN) lab down

## Checking

lint: venv
	@echo '== ruff'
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@echo '== mypy (strict)'
	@$(BIN)/mypy ironspan tests tools $(COLLECTION)/plugins
	@echo '== yamllint (strict)'
	@$(BIN)/yamllint --strict .
	@echo '== ansible-lint (production profile)'
	@$(BIN)/ansible-lint --offline --strict -q
	@echo '== generated documentation is fresh'
	@$(PYTHON) -m tools.reference --check
	@$(PYTHON) -m tools.execution_environment --check

# What ran how long, for `make durations`.
REPORTS := build/junit
# A test that hangs shows where, and ends its process.
HANGS := -o faulthandler_timeout=900 -o faulthandler_exit_on_timeout=true --max-worker-restart=0

unit: venv
	@echo '== Unit tests'
	@$(PYTHON) -m pytest $(HANGS) -n auto --dist worksteal tests/unit

# As on a machine that was used for other things: foreign caches and settings, locale, time zone, umask and proxy.
used-home: venv
	@echo '== Unit tests, in the home of somebody with other projects'
	@$(PYTHON) -m tests.support.hostile_home $(PYTHON) -m pytest $(HANGS) -n auto --dist worksteal --durations=10 \
	    --junitxml=$(REPORTS)/unit.xml tests/unit

# Labs wait more than they compute: two files at a time, the longest first. Not those that measure.
TWO_AT_ONCE := -n 2 --dist loadfile --no-loadscope-reorder
ALONE := tests/bench

integration: all-artifacts
	@$(PYTHON) -m pytest $(TWO_AT_ONCE) --durations=25 --junitxml=$(REPORTS)/integration.xml tests/integration

durations: venv
	@$(PYTHON) -m tests.support.durations $(wildcard $(REPORTS)/*.xml)

# The scenarios of which `make test` runs a short version.
long: all-artifacts
	@$(PYTHON) -m pytest -m long --durations=15 tests/unit tests/integration

RUNS ?= 1000
SEED ?= 0
MEMBERS ?= 1
random: artifacts
	@IRONSPAN_RANDOM_RUNS=$(RUNS) IRONSPAN_RANDOM_SEED=$(SEED) IRONSPAN_RANDOM_MEMBERS=$(MEMBERS) \
	    $(PYTHON) -m pytest -k acknowledged tests/integration/test_backup_random.py

# Its own environment is made in the cache; the list of what is passed over, with reasons, is tools/checkov.yml.
checkov: venv
	@$(PYTHON) -m tools.checkov

# Debian's Chromium; Playwright and axe come into the cache. Screenshots are left in build/pages.
browser: venv
	@tools/debian-packages browser
	@$(PYTHON) -m pytest -m long -rA tests/integration/test_pages_in_browser.py

MINUTES ?= 30
FUZZ_SEED ?= 0
fuzz: venv
	@IRONSPAN_FUZZ_MINUTES=$(MINUTES) IRONSPAN_FUZZ_SEED=$(FUZZ_SEED) $(PYTHON) -m pytest -m long -rP tests/unit/fuzz

CASES ?= 50000
GOOD ?= 5000
REFUSE_SEED ?= 0
refuse: venv
	@$(PYTHON) -m tests.unit.refuse --cases $(CASES) --good $(GOOD) --seed $(REFUSE_SEED) --report build/refuse-$(REFUSE_SEED).json

NODES ?= 1000
# NODES=5000 where the machine allows it (docs/sizes.md); SIMULATION has more options, --help says which.
simulate: artifacts
	@$(PYTHON) -m tests.support.kwok
	@$(PYTHON) -m tests.support.simulation --nodes $(NODES) $(SIMULATION)

# From nothing Cilium alone takes a quarter of an hour; STARTS=200 for pods that try what is closed with their first packet.
# CHANGES: policies made and deleted, to measure how soon a packet meets them.
STARTS ?= 20
CHANGES ?= 50
cilium: venv packages
	@$(IRONSPAN) artifacts build --source $(SOURCE) --set cilium
	@IRONSPAN_CILIUM_STARTS=$(STARTS) IRONSPAN_CILIUM_CHANGES=$(CHANGES) $(PYTHON) -m pytest -m 'lab or long' \
	    -rA --durations=15 tests/integration/test_cilium_lab.py

# Kubernetes' own conformance tests, with default and with hardened settings: logs and reports in build/conformance.
# From nothing it compiles for a quarter of an hour, and runs for hours: CONFORMANCE names what of it, as pytest's -k does.
CONFORMANCE ?= all_that or a_few
conformance: venv packages
	@$(IRONSPAN) artifacts build --source $(SOURCE) --set conformance
	@$(PYTHON) -m tests.support.conformance
	@IRONSPAN_CONFORMANCE=$(CURDIR)/build/conformance $(PYTHON) -m pytest -m 'lab or long' -rA --durations=5 \
	    -k '$(CONFORMANCE)' tests/integration/test_conformance.py

cni-migrate: venv packages
	@$(IRONSPAN) artifacts build --source $(SOURCE) --set cilium
	@$(PYTHON) -m pytest -m long -rA tests/integration/test_cni_migrate.py

molecule: all-artifacts
	@$(BIN)/molecule test --all

bench: artifacts
	@IRONSPAN_BENCH_RECORD=docs/benchmarks.md $(PYTHON) -m pytest -m bench tests/bench tests/integration/test_cluster.py

# A pytest summary is the last thing printed. What fails among the first keeps nobody from seeing the rest.
# While labs wait there is time for what only computes; what that says is printed when it is done.
test: all-artifacts
	@mkdir -p $(REPORTS); failed=0; \
	nice $(MAKE) --no-print-directory -k lint used-home > build/checks.log 2>&1 & checks=$$!; \
	trap 'kill $$checks; exit 130' INT TERM; \
	echo '== Integration tests; beside them lint and unit tests, whose output comes after theirs'; \
	$(PYTHON) -m pytest $(HANGS) $(TWO_AT_ONCE) --durations=25 --junitxml=$(REPORTS)/integration.xml \
	    tests/integration || failed=1; \
	wait $$checks || failed=1; \
	cat build/checks.log; \
	echo '== Budgets, which need the machine to themselves'; \
	$(PYTHON) -m pytest --durations=15 --junitxml=$(REPORTS)/alone.xml $(ALONE) || failed=1; \
	exit $$failed

## Writing

docs: venv
	@$(PYTHON) -m tools.reference
	@$(PYTHON) -m tools.execution_environment

# A site with search and navigation, from the same pages; a dead link fails. Its own environment is made in the cache.
site: venv
	@$(PYTHON) -m tools.site

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .hypothesis .ansible .cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
