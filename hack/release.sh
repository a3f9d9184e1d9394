#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0

# Builds the parts of a release into DIST. Without a part it builds all parts, from scratch.
#
# usage: hack/release.sh [PART...]
#        hack/release.sh --help
#
#   image        the container image, for each architecture and as one OCI layout
#   components   the packaged chart, and addon-components.yaml and metadata.yaml for clusterctl
#   binaries     the programs, archives of the kubectl plugin, and their SBOMs
#   krew         krew's manifest of these archives
#   notes        the section of the changelog
#   check        builds nothing: checks that the sources may be tagged with VERSION
#
# environment: VERSION (the chart's appVersion), DIST (dist), PLATFORMS (linux-amd64 ...),
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

# build PLATFORM PACKAGE...: Go's information about the checkout differs between a clone, a work tree and a source archive of one commit.
build() {
	GOOS=${1%-*} GOARCH=${1#*-} GOFLAGS="${GOFLAGS-} -buildvcs=false" hack/build.sh "bin/$1" "${@:2}"
}

# pack PART: packs what is in bin.
pack() {
	# shellcheck disable=SC2086 # a list of words
	go -C hack/tools/release run . --source "$PWD" --out "$dist" --version "$VERSION" --revision "$revision" --created "$SOURCE_DATE_EPOCH" "$1" $platforms
}

image() {
	local platform
	for platform in $platforms; do
		[[ $platform != linux-* ]] || build "$platform" ./cmd/heirloom
	done
	pack image
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
		build "$platform" "${programs[@]}"
	done
	pack package
}

# krew fills in .krew.yaml, as krew-release-bot does.
krew() {
	local line uri sum
	while IFS= read -r line; do
		if [[ $line =~ addURIAndSha\ \"([^\"]*)\" ]]; then
			uri=${BASH_REMATCH[1]//'{{ .TagName }}'/$VERSION}
			sum=$(sha256sum "$dist/${uri##*/}")
			line="      uri: $uri"$'\n'"      sha256: \"${sum%% *}\""
		fi
		echo "${line//'{{ .TagName }}'/$VERSION}"
	done <.krew.yaml >"$dist/heirloom.yaml"
}

# section VERSION: a version's heading and text in the changelog, each item on one line: GitHub shows the line breaks in the text of a release.
section() {
	awk -v heading="## [$1]" '
		/^## / { in_it = index($0, heading) == 1 }
		/^\[[^]]+\]: / { in_it = 0 }
		!in_it { next }
		/^ +[^ *-]/ && line != "" { sub(/^ +/, ""); line = line " " $0; next }
		{ if (NR > 1 && seen++) print line; line = $0 }
		END { print line }' CHANGELOG.md
}

# A version without a section gets the section Unreleased, for a trial.
notes() {
	local text
	mkdir -p "$dist"
	text=$(section "${VERSION#v}")
	[[ -n $text ]] || text=$(section Unreleased | sed "1s/.*/&\n\nThis is a trial: the changelog has no section $VERSION, so what follows is unreleased./")
	printf '%s\n\n[How to check these files](https://github.com/heirloom-dev/heirloom/blob/%s/docs/release.md#verify)\n' \
		"$(tail -n +3 <<<"$text")" "$VERSION" >"$dist/release-notes.md"
}

check() {
	local chart=deploy/chart/heirloom/Chart.yaml metadata=deploy/clusterctl/metadata.yaml number=${VERSION#v} major minor
	[[ $VERSION =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9a-z.]+)?$ ]] || gap "$VERSION is not a version such as v1.2.3"
	grep -qxE "version: \"?$number\"?" $chart || gap "$chart: version is not $number"
	grep -qxE "appVersion: \"?$VERSION\"?" $chart || gap "$chart: appVersion is not $VERSION"
	IFS=. read -r major minor _ <<<"$number"
	# Without the series, clusterctl would refuse the release.
	grep -A 1 -E "^ *- major: $major$" $metadata | grep -qE "^ *minor: $minor$" || gap "$metadata has no series $major.$minor"
	section "$number" | head -n 1 | grep -qE ' - [0-9]{4}-[0-9]{2}-[0-9]{2}$' || gap "CHANGELOG.md has no section [$number] with a date"
	[[ $(section "$number" | wc -l) -gt 2 ]] || gap "CHANGELOG.md says nothing of $number"
	[[ $(section Unreleased | grep -c .) -le 1 ]] || gap "CHANGELOG.md still has something that is unreleased"
	((gaps == 0))
}

gaps=0
gap() {
	echo "$1" >&2
	gaps=$((gaps + 1))
}

if (($# == 0)); then
	[[ $dist != "$PWD/dist" ]] || rm -rf dist
	image
	components
	binaries
	krew
	notes
	(cd "$dist" && sha256sum -- * >SHA256SUMS)
	exit
fi
for part in "$@"; do
	case $part in
	image | components | binaries | krew | notes | check) ;;
	*) echo "error: there is no part $part; see hack/release.sh --help" >&2; exit 1 ;;
	esac
	$part
done
