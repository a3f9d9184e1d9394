#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0

# Installs Chromium from the distribution's packages, if root and apt-get can. Fails, and says why, if Chromium is missing at the end.

set -euo pipefail

say() { echo "test-site: $*" >&2; }

found() { command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null

if found; then
	exit 0
fi
command -v apt-get >/dev/null || { say "install Chromium to test pages in it"; exit 1; }
[[ $(id -u) == 0 ]] || { say "install the package chromium to test pages in it"; exit 1; }
say "installing chromium"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export DEBIAN_FRONTEND=noninteractive
if ! { apt-get update -q && apt-get install -qy --no-install-recommends chromium; } >"$log" 2>&1 </dev/null; then
	tail -n 5 "$log" >&2
	say "apt-get cannot install it here"
	exit 1
fi
found || { say "the package chromium does not bring the program"; exit 1; }
