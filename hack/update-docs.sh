#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0

# Writes the output of the programs into the documentation: the output of the plugin into README.md and docs/kubectl.md, the output of the
# demo into docs/images/demo.svg.
#
# usage: hack/update-docs.sh plugin|demo
#        hack/update-docs.sh --help

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
case ${1---help} in
plugin) sets=(controlplane tools helm) ;;
demo) sets=(controlplane tools freeze) ;;
--help)
	sed -n '4,/^$/s/^# \{0,1\}//p' "hack/${0##*/}"
	exit
	;;
*) echo "error: $1? see hack/update-docs.sh --help" >&2; exit 1 ;;
esac

make --no-print-directory build
programs=$(hack/tools/build.sh --env "${sets[@]}")
eval "$programs"
if [[ $1 == plugin ]]; then
	HEIRLOOM_UPDATE_DOCS=1 go test -count=1 -run '^TestKubectl$' ./test/integration/
else
	CLICOLOR_FORCE=1 go run ./test/demo | test/demo/picture.sh | "$HEIRLOOM_FREEZE/freeze" --output docs/images/demo.svg --language=ansi \
		--window --padding=20 --border.radius=8 --font.family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"
fi
