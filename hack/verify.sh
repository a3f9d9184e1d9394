#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0

# Runs every check that is not a test, also after a check has failed, and prints the failed checks at the end.
#
# usage: hack/verify.sh [CHECK...]     (default: all)
#        hack/verify.sh --help

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tools=hack/tools
checks=(generated format vet lint licences scripts chart proofs words language workflows modules vulnerabilities)
if [[ ${1-} == --help ]]; then
	sed -n '4,/^$/s/^# \{0,1\}//p' "hack/${0##*/}"
	echo "checks: ${checks[*]}"
	exit
fi
(($# == 0)) || checks=("$@")

# files PATTERN...: the files of the work tree that git has or would take.
files() {
	git ls-files --cached --others --exclude-standard -- "$@" | sort -u | while read -r file; do
		[[ ! -f $file ]] || echo "$file"
	done
}

# Compares with the work tree as it is, not with the last commit: uncommitted work is not a fault.
generated() {
	local before after
	before=$(files | git hash-object --stdin-paths | paste - <(files))
	make --no-print-directory generate
	after=$(files | git hash-object --stdin-paths | paste - <(files))
	diff <(echo "$before") <(echo "$after") || {
		echo "these files are not what 'make generate' makes of them (< before, > after); it has just been run"
		return 1
	}
}

format() {
	local badly
	badly=$(gofmt -l .)
	[[ -z $badly ]] || { echo "$badly"; return 1; }
}

vet() { go vet ./...; }

lint() { make --no-print-directory lint; }

licences() {
	local file status=0
	while read -r file; do
		if ! head -n 2 "$file" | grep -q 'SPDX-License-Identifier: Apache-2.0' &&
			! grep -q '^// Code generated .* DO NOT EDIT\.$' "$file"; then
			echo "$file: no SPDX-License-Identifier: Apache-2.0 at the top"
			status=1
		fi
	done < <(files '*.go' '*.sh' '*Makefile')
	return "$status"
}

# scripts checks each script with bash, the help text of the scripts in hack, and each script with shellcheck if it is installed.
scripts() {
	local file status=0
	while read -r file; do
		bash -n "$file" || status=1
		[[ ! $file =~ ^hack/[^/]+\.sh$ ]] || bash "$file" --help | grep '^usage: ' >/dev/null || { echo "$file: --help says nothing"; status=1; }
	done < <(files '*.sh' .ci/run)
	if command -v shellcheck >/dev/null; then
		files '*.sh' .ci/run | xargs shellcheck --severity=warning || status=1
	fi
	return "$status"
}

chart() {
	"$($tools/build.sh helm)/helm" lint deploy/chart/heirloom
}

modules() {
	local file status=0
	while read -r file; do
		go -C "$(dirname "$file")" mod tidy -diff || { echo "$file is not tidy"; status=1; }
	done < <(files go.mod '*/go.mod' ':!docs/site/go.mod') # A theme, which no Go program imports.
	return "$status"
}

# proofs checks that the tests exist that documents name.
proofs() {
	local name status=0
	while read -r name; do
		grep -rqE --include='*_test.go' "^func $name\(" . || { echo "$name is named, and there is no such test"; status=1; }
	done < <(files '*.md' | xargs grep -ohE '`(Test|Fuzz)[A-Za-z0-9_]+`' | tr -d '`' | sort -u)
	return "$status"
}

# words warns when README, docs and the chart's README become long: readers skip the rest.
words() {
	local readme all
	readme=$(wc -w <README.md)
	all=$(files README.md 'docs/*.md' 'deploy/*.md' | xargs cat | wc -w)
	echo "README.md has $readme words, all pages have $all"
	((readme <= 700 && all <= 36000)) || echo "warning: README.md should have at most 700, all pages at most 36000"
}

# language checks the English of pages and of the program's comments, not of tests, with the rules in hack/vale, whose wrong.md shows that
# each rule still finds its mistake.
language() {
	local vale
	vale=$($tools/build.sh language)/vale
	diff <(grep -n '^\* ' hack/vale/wrong.md | cut -d: -f1) <("$vale" --output=line hack/vale/wrong.md | cut -d: -f2 | sort -nu) ||
		{ echo "hack/vale no longer finds mistakes in these lines of wrong.md"; return 1; }
	files ':(glob)*.md' '.github/*.md' 'docs/*.md' 'deploy/*.md' deploy/chart/heirloom/values.yaml test/README.md \
		'cmd/*.go' 'pkg/*.go' 'webhooks/*.go' 'certs/*.go' ':!*_test.go' | xargs "$vale" --output=line
}

workflows() {
	"$($tools/build.sh dev)/actionlint"
}

vulnerabilities() {
	local dir database=${GOVULNDB:-https://vuln.go.dev}
	if [[ $database == http* ]] && ! curl --silent --fail --output /dev/null --max-time 20 "$database/index/db.json"; then
		echo "SKIPPED: the vulnerability database at $database cannot be reached from here"
		return 0
	fi
	dir=$($tools/build.sh dev)
	"$dir/govulncheck" ./...
}

failed=()
for check in "${checks[@]}"; do
	echo "== $check"
	# In a subshell, because set -e has no effect within a condition.
	set +e
	(set -e; "$check")
	status=$?
	set -e
	((status == 0)) || failed+=("$check")
done

if ((${#failed[@]} > 0)); then
	echo "failed: ${failed[*]}" >&2
	exit 1
fi
echo "all checks passed"
