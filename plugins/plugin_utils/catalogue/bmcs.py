# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Management controllers of servers (BMC), spoken to directly."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.common import (
    ALLOW_DESTRUCTIVE,
    EVERYWHERE,
    EXPECTED,
    PLAN,
    REPORT,
    SERVERS,
    changed,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.kinds import Argument, Operation

_FACTORY = Argument(
    name="ironspan_factory",
    what="file of the accounts that BMCs come with, which only you can read",
    type="file",
    of_run=True,
)
_NAMED = changed(SERVERS, what="servers, as the file calls them", required=True)

OPERATIONS = (
    Operation(
        name="bmc_setup",
        summary="BMCs get a password and a certificate of the site's own, and few network services",
        details="Passwords are made here and kept in the PKI store only. The next run resumes one that was "
        "killed. A server that is not the expected one is left alone and named.",
        command=("bmc", "setup"),
        arguments=(
            SERVERS,
            EXPECTED,
            _FACTORY,
            Argument(
                name="ironspan_rotate",
                what="another password also where it is the site's already",
                type="bool",
                default=False,
            ),
            Argument(
                name="ironspan_close",
                what="network services to switch off, as Redfish calls them",
                type="list",
                default=("IPMI", "SNMP", "Telnet", "HTTP", "SSDP"),
                # As redfish/protocols.py has them; a test compares.
                choices=(
                    *("IPMI", "SNMP", "Telnet", "HTTP", "SSDP", "SSH", "VirtualMedia", "KVMIP", "RDP", "RFB"),
                    *("mDNS", "FTP", "DHCP", "DHCPv6", "NTP"),
                ),
            ),
            Argument(
                name="ironspan_certify",
                what="whether the site's authority signs the certificate of the web server",
                type="bool",
                default=True,
            ),
            PLAN,
            *EVERYWHERE,
        ),
        compared="none",
        remote=("bmc",),
        cluster=False,
        minutes=30,
        approval=True,
    ),
    Operation(
        name="bmc_show",
        summary="who answers behind each BMC: serial number, model, power, versions, services, accounts",
        command=("bmc", "show"),
        arguments=(SERVERS, EXPECTED, _FACTORY, REPORT, *EVERYWHERE),
        changes=False,
    ),
    Operation(
        name="bmc_log",
        summary="what BMCs have logged (SEL)",
        command=("bmc", "log"),
        arguments=(
            _NAMED,
            EXPECTED,
            _FACTORY,
            Argument(
                name="ironspan_entries",
                what="how many entries of each server, the newest",
                type="int",
                default=50,
                least=1,
                most=5000,
            ),
            Argument(
                name="ironspan_worse_than",
                what="only entries of a higher severity",
                choices=("OK", "Warning"),
            ),
            REPORT,
            *EVERYWHERE,
        ),
        changes=False,
    ),
    Operation(
        name="bmc_light",
        summary="switch the identification light of servers",
        command=("bmc", "light"),
        arguments=(
            Argument(
                name="ironspan_light",
                what="on or off",
                choices=("on", "off"),
                required=True,
                option="LIGHT",
            ),
            _NAMED,
            EXPECTED,
            _FACTORY,
            REPORT,
            *EVERYWHERE,
        ),
        check_mode=False,
        minutes=5,
    ),
    Operation(
        name="bmc_power",
        summary="switch servers on, off or off and on, and prove that they are",
        details='"graceful" lets the operating system shut down and does not cut the power. Everything but '
        '"on" needs --allow-destructive: drain a node before.',
        command=("bmc", "power"),
        arguments=(
            Argument(
                name="ironspan_power",
                what="where to",
                choices=("on", "off", "graceful", "cycle"),
                required=True,
                option="POWER",
            ),
            _NAMED,
            EXPECTED,
            _FACTORY,
            ALLOW_DESTRUCTIVE,
            REPORT,
            *EVERYWHERE,
        ),
        approval=True,
        minutes=10,
    ),
)
