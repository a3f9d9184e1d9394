#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0

# Builds the parts of a release into DIST. Without a part it builds all parts, from scratch.
#
# usage: hack/release.sh [PART...]
#        hack/release.sh --help
#
#   image        the container image, for each architecture and as one OCI layout, with SBOMs
#   components   the packaged chart, and addon-components.yaml and metadata.yaml for clusterctl
#   binaries     the programs, archives of the kubectl plugin, their SBOMs, and krew's manifest
#   notes        the section of the changelog
#   check        builds nothing: checks that the sources may be tagged with VERSION
#
# environment: VERSION (the chart's appVersion), DIST (dist), PLATFORMS (of binaries: linux-amd64 ...),
#              REVISION and SOURCE_DATE_EPOCH (of the commit)

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [[ ${1-} == --help ]]; then
	sed -n '4,/^$/s/^# \{0,1\}//p' "hack/${0##*/}"
	exit
fi

export VERSION=${VERSION:-$(awk '$1 == "appVersion:" { print $2 }' deploy/chart/heirloom/Chart.yaml)}
dist=${DIST:-$PWD/dist}
[[ $dist == /* ]] || dist=$PWD/$dist
platforms=${PLATFORMS:-linux-amd64 linux-arm64 darwin-amd64 darwin-arm64 windows-amd64 windows-arm64}
# The same commit gives the same files on every machine: all files have the time of the commit.
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
revision=${REVISION:-$(git rev-parse HEAD 2>/dev/null || echo unknown)$(git diff --quiet HEAD 2>/dev/null || echo -dirty)}

# files COMMAND ARGUMENT...: makes the files other than image and chart.
files() { go -C hack/tools/release run . "$1" --source "$PWD" --out "$dist" --version "$VERSION" "${@:2}"; }

image() {
	go -C hack/tools/release run ./image --source "$PWD" --out "$dist" --version "$VERSION" --revision "$revision" --created "$SOURCE_DATE_EPOCH"
}

components() {
	local helm chart=${VERSION#v}
	helm=$(hack/tools/build.sh helm)/helm
	mkdir -p "$dist"
	"$helm" package deploy/chart/heirloom --destination "$dist" --version "$chart" --app-version "$VERSION"
	"$helm" template heirloom "$dist/heirloom-$chart.tgz" --namespace heirloom-system --no-hooks \
		--values deploy/clusterctl/values.yaml --skip-schema-validation >"$dist/addon-components.yaml"
	cp deploy/clusterctl/metadata.yaml "$dist/"
}

binaries() {
	local platform programs
	for platform in $platforms; do
		programs=(./cmd/kubectl-heirloom)
		[[ $platform != linux-* ]] || programs+=(./cmd/heirloom)
		GOOS=${platform%-*} GOARCH=${platform#*-} GOFLAGS="${GOFLAGS-} -buildvcs=false" hack/build.sh "bin/$platform" "${programs[@]}"
	done
	# shellcheck disable=SC2086 # a list of words
	files package --created "$SOURCE_DATE_EPOCH" $platforms
}

notes() {
	mkdir -p "$dist"
	files notes
}

if (($# == 0)); then
	[[ $dist != "$PWD/dist" ]] || rm -rf dist
	image
	components
	binaries
	notes
	(cd "$dist" && sha256sum -- * >SHA256SUMS)
	exit
fi
for part in "$@"; do
	case $part in
	image | components | binaries | notes) ;;
	check) part="files check" ;;
	*) echo "error: there is no part $part; see hack/release.sh --help" >&2; exit 1 ;;
	esac
	$part
done
