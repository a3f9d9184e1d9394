#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0

# Pushes image and chart of a release out of DIST, with your login to the registry. The lines on stdout are their names and digests.
#
# usage: hack/push.sh [--image]     with --image, the image alone
#        hack/push.sh --help
#
# environment: VERSION (the chart's appVersion), DIST (dist), REGISTRY (ghcr.io/heirloom-dev), PUSHFLAGS (of helm push, such as --plain-http)

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
case ${1-} in
"" | --image) ;;
--help)
	sed -n '4,/^$/s/^# \{0,1\}//p' "hack/${0##*/}"
	exit
	;;
*) echo "error: $1? see hack/push.sh --help" >&2; exit 1 ;;
esac

version=${VERSION:-$(awk '$1 == "appVersion:" { print $2 }' deploy/chart/heirloom/Chart.yaml)}
dist=${DIST:-$PWD/dist} registry=${REGISTRY:-ghcr.io/heirloom-dev}
[[ $dist == /* ]] || dist=$PWD/$dist

layout=$(mktemp -d)
trap 'rm -rf "$layout"' EXIT
tar -xf "$dist/heirloom-$version-oci.tar" -C "$layout"
go -C hack/tools/release tool crane push "$layout" "$registry/heirloom:$version" | sed 's/.*@/image-digest=/'
echo "image=$registry/heirloom"
[[ ${1-} != --image ]] || exit 0

helm=$(hack/tools/build.sh helm)/helm
# shellcheck disable=SC2086 # a list of words
"$helm" push "$dist/heirloom-${version#v}.tgz" "oci://$registry/charts" ${PUSHFLAGS-} 2>&1 |
	tee /dev/stderr | sed -n 's/^Digest: /chart-digest=/p'
echo "chart=$registry/charts/heirloom"
