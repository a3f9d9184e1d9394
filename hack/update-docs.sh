#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0

# Writes what the programs print into the documentation: of the plugin into README.md and docs/kubectl.md, of the demo into
# docs/images/demo.svg.
#
# usage: hack/update-docs.sh plugin|demo
#        hack/update-docs.sh --help

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
case ${1---help} in
plugin) sets=(controlplane tools helm) tests=(-run '^TestKubectl$/^docs$' ./test/integration/) ;;
demo) sets=(controlplane tools freeze) tests=(-run '^TestDemo$' ./test/e2e/) ;;
--help)
	sed -n '4,/^$/s/^# \{0,1\}//p' "hack/${0##*/}"
	exit
	;;
*) echo "error: $1? see hack/update-docs.sh --help" >&2; exit 1 ;;
esac

make --no-print-directory build
programs=$(hack/tools/build.sh --env "${sets[@]}")
eval "$programs"
HEIRLOOM_UPDATE_DOCS=1 go test -count=1 "${tests[@]}"
