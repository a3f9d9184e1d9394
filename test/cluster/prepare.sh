#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0

# Installs what a cluster needs of the distribution, where root and apt-get can. Fails, and says what is missing, where a
# cluster cannot run.

set -euo pipefail

say() { echo "test-cluster: $*" >&2; }

[[ $(uname -s) == Linux ]] || { say "a cluster needs Linux"; exit 1; }
[[ $(id -u) == 0 ]] || { say "a cluster needs root"; exit 1; }

missing() {
	local program
	for program in containerd runc iptables ip; do
		command -v "$program" >/dev/null || return 0
	done
	[[ ! -x /usr/lib/cni/bridge ]]
}

if missing; then
	packages=(containerd runc containernetworking-plugins iptables iproute2)
	command -v apt-get >/dev/null || { say "install these packages, by the names that they have here: ${packages[*]}"; exit 1; }
	say "installing ${packages[*]}"
	log=$(mktemp)
	trap 'rm -f "$log"' EXIT
	export DEBIAN_FRONTEND=noninteractive
	if ! { apt-get update -q && apt-get install -qy --no-install-recommends "${packages[@]}"; } >"$log" 2>&1 </dev/null; then
		tail -n 5 "$log" >&2
		say "apt-get cannot install them here"
		exit 1
	fi
	! missing || { say "these packages do not bring all that is needed: ${packages[*]}"; exit 1; }
fi
