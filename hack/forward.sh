#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0

# Builds Heirloom with newer libraries than go.mod requires, and runs the tests that need nothing but Go. The libraries that move with
# Kubernetes are k8s.io/*, controller-runtime and Cluster API. go.mod and go.sum stay as they are: a copy is used.
#
# usage: hack/forward.sh [--prereleases]     without it, the newest release of each is taken; with it, the newest version
#        hack/forward.sh --help

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [[ ${1-} == --help ]]; then
	sed -n '4,/^$/s/^# \{0,1\}//p' "hack/${0##*/}"
	exit
fi
prereleases=
if [[ ${1-} == --prereleases ]]; then
	prereleases=yes
fi
export GOWORK=off GOFLAGS="${GOFLAGS-} -mod=mod"
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cp go.mod go.sum "$copy/"

# required FILE: "module version" of each library that moves with Kubernetes and that the go.mod file requires directly.
required() {
	awk '/ \/\/ indirect$/ { next } { sub(/^require /, "") }
		$1 ~ "^k8s.io/" && $2 ~ /^v0\.[1-9]/ || $1 ~ "^sigs.k8s.io/(controller-runtime|cluster-api(/api)?)$" { print $1, $2 }' "$1"
}

# newest MODULE: the version to try.
newest() {
	go list -m -versions "$1" | tr ' ' '\n' | tail -n +2 | grep -E "^v[0-9.]+${prereleases:+(-[a-z]+\.[0-9]+)?}\$" | tail -n 1
}

wanted=() newer=()
while read -r module version; do
	found=$(newest "$module")
	wanted+=("$module@${found:-$version}")
	if [[ -n $found && $found != "$version" ]]; then
		newer+=("$module $version -> $found")
	fi
done < <(required go.mod)
if ((${#newer[@]} == 0)); then
	echo "No newer version than in go.mod: ${wanted[*]}"
	exit 0
fi

echo "Newer than in go.mod:"
printf '  %s\n' "${newer[@]}"
go get -modfile="$copy/go.mod" "${wanted[@]}"
echo "Selected:"
required "$copy/go.mod" | sed 's/^/  /'
failed=()
# try NAME COMMAND...: runs the command, also after another command has failed.
try() {
	local what=$1
	shift
	echo "== $what"
	"$@" || failed+=("$what")
}
try "build the programs" go build -modfile="$copy/go.mod" ./cmd/...
try "compile everything, with tests" go vet -modfile="$copy/go.mod" ./...
try "tests that need only Go" go test -modfile="$copy/go.mod" ./pkg/... ./cmd/... ./webhooks/... ./certs/... ./test/rules/...
if ((${#failed[@]} > 0)); then
	printf 'Failed with these versions: %s\n' "${failed[@]}" >&2
	exit 1
fi
echo "Passed with these versions"
