#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0

# Runs the tests of one package again and again beside a busy loop for each core, each time as a process of its own, and
# stops at the first failure. A test whose verdict depends on time or luck does not get through this.
#
# usage: flaky.sh PACKAGE TIMES [FLAG...]     flags of a test binary, such as -test.run='^TestFleet$'

set -euo pipefail

package=$1 times=$2
shift 2
dir=$(go list -f '{{.Dir}}' "$package")
temp=$(mktemp -d)
loops=()

clean_up() {
	((${#loops[@]} == 0)) || kill "${loops[@]}" 2>/dev/null || true
	rm -rf "$temp"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

go test -race -trimpath -c -o "$temp/tests" "$package"
[[ -x $temp/tests ]] || { echo "$package has no tests" >&2; exit 1; }
for _ in $(seq "$(getconf _NPROCESSORS_ONLN)"); do
	(while :; do :; done) &
	loops+=("$!")
done
for ((run = 1; run <= times; run++)); do
	started=$SECONDS
	if ! (cd "$dir" && "$temp/tests" -test.timeout=60m "$@") >"$temp/log" 2>&1; then
		cat "$temp/log"
		echo "run $run of $times failed after $((SECONDS - started)) s" >&2
		exit 1
	fi
	# Where nothing matches, the binary passes, too, and would show nothing.
	! grep -q '^testing: warning: no tests to run$' "$temp/log" || { echo "$package has no tests${*:+ for $*}" >&2; exit 1; }
	echo "run $run of $times passed in $((SECONDS - started)) s"
done
