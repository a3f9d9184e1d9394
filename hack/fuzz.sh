#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0

# Runs each fuzz target for a while.
#
# usage: hack/fuzz.sh [TIME]     (default: 30s each)
#        hack/fuzz.sh --help

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [[ ${1-} == --help ]]; then
	sed -n '4,/^$/s/^# \{0,1\}//p' "hack/${0##*/}"
	exit
fi

targets=$(grep -rHoE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' cmd pkg webhooks certs)
while IFS=: read -r file declaration; do
	go test -run '^$' -fuzz "^${declaration#func }$" -fuzztime "${1:-30s}" -fuzzminimizetime 20x "./$(dirname "$file")"
done <<<"$targets"
