# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What answers a question and changes nothing."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.common import (
    EVERYTHING,
    EVERYWHERE,
    REPORT,
    changed,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.kinds import Argument, Operation

OPERATIONS = (
    Operation(
        name="doctor",
        summary="one page of what is wrong with the site, and the command that fixes it",
        command=("doctor",),
        hosts="all, one execution each",
        arguments=(REPORT, *EVERYWHERE),
        changes=False,
    ),
    Operation(
        name="certs",
        summary="every certificate in the cluster and when it ends",
        command=("certs", "show"),
        hosts="all",
        arguments=(
            Argument(
                name="ironspan_days",
                what="what ends within as many days is due",
                type="int",
                default=30,
                least=0,
                most=36_500,
            ),
            Argument(
                name="ironspan_fail_when_due", what="fail when something is due", type="bool", default=False
            ),
            changed(EVERYTHING, what="a line a certificate, also where many are alike"),
            *EVERYWHERE,
        ),
        changes=False,
    ),
    Operation(
        name="approve_csrs",
        summary="decide about the kubelets' pending requests for serving certificates, once",
        details="Those that match the inventory are approved, all others denied and named.",
        arguments=EVERYWHERE,
    ),
    Operation(
        name="access_review",
        summary="who can do what in the cluster, what is remarkable, and what is unused",
        command=("access", "review"),
        arguments=(
            Argument(
                name="ironspan_audit_logs",
                what="audit logs of API servers, on the controller, plain or compressed with gzip",
                type="files",
                default=(),
                option="audit-log",
            ),
            changed(EVERYTHING, what="also bindings that every cluster has"),
            Argument(name="ironspan_subject", what="only subjects with this in their name", default=""),
            Argument(
                name="ironspan_can",
                what="only who may do this: a verb and a resource, such as create and pods/exec",
                type="list",
                default=(),
                words=("VERB", "RESOURCE"),
            ),
            Argument(
                name="ironspan_namespace",
                what="where, for ironspan_can (in any)",
                pattern="[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?",
                example="the name of a namespace, such as web",
                default="",
                short="n",
            ),
            Argument(
                name="ironspan_fail_on_findings",
                what="fail when something is found that nothing explains",
                type="bool",
                default=False,
            ),
            *EVERYWHERE,
        ),
        changes=False,
    ),
    Operation(
        name="egress_show",
        summary="what every host lets its pods reach, and how often it was used",
        command=("egress", "show"),
        hosts="control planes and workers",
        arguments=EVERYWHERE,
        changes=False,
    ),
    Operation(
        name="net_check",
        summary="what the network between the hosts is like: latency, loss, packet sizes, names, tables",
        command=("net", "check"),
        hosts="all, one execution each",
        arguments=(REPORT, *EVERYWHERE),
        changes=False,
    ),
    Operation(
        name="net_policy",
        summary="whether policies let a pod reach something, and by which rule",
        command=("net", "check"),
        arguments=(
            Argument(
                name="ironspan_from",
                what="the pod that connects, as NAMESPACE/POD",
                pattern="[^/]+/[^/]+",
                example="web/shop-0",
                required=True,
            ),
            Argument(
                name="ironspan_to",
                what="where to: NAMESPACE/POD:PORT, ADDRESS:PORT, SERVICE.NAMESPACE.svc:PORT or NAME:PORT, "
                "with /udp behind "
                "it if it is not TCP",
                required=True,
            ),
            REPORT,
            *EVERYWHERE,
        ),
        changes=False,
    ),
    Operation(
        name="azure_routes",
        summary="routes of a virtual network to the pods of nodes in Azure, as data or a template",
        command=("net", "routes"),
        arguments=(
            Argument(
                name="ironspan_location",
                what="the region, such as westeurope; that of the estate, if there is one",
            ),
            Argument(
                name="ironspan_table",
                what="name of the route table",
                pattern="[A-Za-z0-9]([A-Za-z0-9._-]{0,78}[A-Za-z0-9_])?",
                example="letters, digits and ._-, such as pods",
            ),
            Argument(
                name="ironspan_managed",
                what="Virtual Network Manager keeps the table: 1,000 routes, not 400",
                type="bool",
                default=False,
            ),
            REPORT,
            *EVERYWHERE,
        ),
        changes=False,
    ),
    Operation(
        name="runtime_bench",
        summary="what sandboxes cost on the hosts that serve them, compared with runc",
        command=("runtime", "bench"),
        hosts="hosts of gvisor and gvisor_gpu",
        arguments=EVERYWHERE,
        check_mode=False,
        minutes=30,
    ),
)
