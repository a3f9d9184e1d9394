#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0

# Runs a command and says at its end how many API servers it has started, and what its tests waited for. Within another
# account.sh it only runs the command: there is one account of a run.
#
# usage: account.sh COMMAND...

set -euo pipefail

[[ -z ${HEIRLOOM_WAITS-} ]] || exec "$@"

HEIRLOOM_WAITS=$(mktemp)
export HEIRLOOM_WAITS
trap 'rm -f "$HEIRLOOM_WAITS"' EXIT
status=0
"$@" || status=$?
awk -f "$(dirname "${BASH_SOURCE[0]}")/waits.awk" "$HEIRLOOM_WAITS"
exit "$status"
