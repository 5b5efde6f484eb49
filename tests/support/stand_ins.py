# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Programs for private roots, in the place of those that act on the whole machine."""

from __future__ import annotations

SYSTEMCTL = r"""#!/bin/sh
# Remembers what is enabled and active; a start fails when the unit's configuration says so.
here="$IRONSPAN_ROOT/run/units"
umask 022
mkdir -p "$here"
verb=$1; shift
case "$verb" in
show)
    shift  # --property
    [ "$1" = -- ] && shift
    for unit in "$@"; do
        if [ -e "$IRONSPAN_ROOT/etc/systemd/system/$unit" ]; then load=loaded; else load=not-found; fi
        if [ -e "$here/$unit.enabled" ]; then file=enabled; else file=disabled; fi
        if [ -e "$here/$unit.active" ]; then active=active sub=exited; else active=inactive sub=dead; fi
        printf 'Id=%s\nLoadState=%s\nActiveState=%s\nSubState=%s\n' "$unit" $load $active $sub
        printf 'UnitFileState=%s\nNeedDaemonReload=no\n\n' $file
    done
    exit 0;;
daemon-reload) exit 0;;
esac
while case "${1:-}" in --*) true;; *) false;; esac; do shift; done
unit=$1
echo "$verb $unit" >>"$IRONSPAN_ROOT/run/calls"
case "$verb" in
enable) touch "$here/$unit.enabled";;
disable) rm -f "$here/$unit.enabled";;
stop) rm -f "$here/$unit.active";;
start|restart|reload|reload-or-restart)
    if grep -qs broken "$IRONSPAN_ROOT/etc/app/app.conf"; then rm -f "$here/$unit.active"; exit 1; fi
    # What the running service has read.
    cat "$IRONSPAN_ROOT/etc/app/app.conf" >"$here/$unit.active" 2>/dev/null || : ;;
esac
exit 0
"""
