#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0

# Builds the site of the documentation: the work tree at the root, and the newest patch of each minor release, as tagged, at
# /vX.Y/. Every version is built with the Hugo, the theme and the layouts of the work tree. With --serve, it serves the
# work tree alone, and builds again what you change.
#
# usage: hack/site.sh DIRECTORY
#        hack/site.sh --serve
#        hack/site.sh --help

set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
if [[ ${1-} == --help ]]; then
	sed -n '4,/^$/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
	exit
fi
url=${SITE_URL:-https://heirloom-dev.github.io/heirloom/}
url=${url%/}/

hugo=$("$root/hack/tools/build.sh" site)/hugo
HUGO_CACHEDIR=${XDG_CACHE_HOME:-$HOME/.cache}/heirloom/hugo
# Hugo would ask the theme's host, not Go's proxy.
HUGO_MODULE_PROXY=$(go env GOPROXY)
export HUGO_CACHEDIR HUGO_MODULE_PROXY GOWORK=off

if [[ ${1-} == --serve ]]; then
	exec "$hugo" server --source "$root/docs/site" --noBuildLock --renderToMemory --baseURL http://localhost/
fi
target=${1:?say into which directory}

temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT

# releases: the newest patch of each minor version that is tagged, the newest version first; no pre-releases.
releases() {
	git -C "$root" tag --list 'v*' --sort=-version:refname | grep -E '^v[0-9]+\.[0-9]+\.[0-9]+$' |
		awk -F. '!seen[$1 "." $2]++' || true
}

# menu: the versions in the site's configuration, for the menu of each page.
menu() {
	local release
	echo "params:"
	echo "  versions:"
	echo "    - { name: main, url: \"$url\" }"
	releases | while read -r release; do
		echo "    - { name: ${release%.*}, url: \"$url${release%.*}/\" }"
	done
}

# build SOURCE NAME REF PATH: builds the site of one version.
build() {
	HUGO_PARAMS_VERSION=$2 HUGO_PARAMS_REF=$3 "$hugo" --source "$1/docs/site" --config "hugo.yaml,$temp/versions.yaml" \
		--noBuildLock --quiet --panicOnWarning --minify --baseURL "$url$4" --destination "$temp/site/$4"
	echo "built the site of $3" >&2
}

menu >"$temp/versions.yaml"
build "$root" main main ""
while read -r release; do
	source=$temp/$release
	mkdir "$source"
	git -C "$root" archive "$release" | tar -x -C "$source"
	rm -rf "$source/docs/site"
	cp -R "$root/docs/site" "$source/docs/site"
	build "$source" "${release%.*}" "$release" "${release%.*}/"
done < <(releases)

# In one step, so that a failed build leaves the last site.
mkdir -p "$(dirname "$target")"
rm -rf "$target"
mv "$temp/site" "$target"
