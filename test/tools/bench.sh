#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0

# Runs benchmarks and writes what they print to a file, below lines that say where and when; it shows both as they come.
#
# usage: bench.sh FILE DIRECTORY...
# environment: RUN, COUNT, BENCHTIME: go test's -bench, -count and -benchtime
#              BENCH_...: sizes, see test/bench

set -euo pipefail
file=${1:?say into which file}
shift
tools=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

version() { GOWORK=off go -C "$tools/$1" list -m -f '{{.Version}}' "$2"; }

memory() {
	if [[ -r /proc/meminfo ]]; then
		awk '$1 == "MemTotal:" { printf "%.0f GiB\n", $2 / 1048576 }' /proc/meminfo
	fi
}

facts() {
	echo "date: $(date -u +%Y-%m-%d)"
	echo "commit: $(git -C "$tools" describe --always --dirty --exclude='*' 2>/dev/null || echo unknown)"
	echo "cores: $(getconf _NPROCESSORS_ONLN)"
	echo "memory: $(memory)"
	echo "go: $(go env GOVERSION | sed 's/^go//')"
	echo "kubernetes: $(version kubernetes k8s.io/kubernetes)"
	echo "cluster-api: $(version cluster-api-v1.14 sigs.k8s.io/cluster-api)"
	echo "count: $COUNT"
	echo "sizes: ${BENCH_SIZES-}"
	echo "machines: ${BENCH_MACHINES-}"
	echo "quiet: ${BENCH_QUIET-}"
}

mapfile -t packages < <(grep -rlE --include='*_test.go' '^func Benchmark' "$@" | xargs -n 1 dirname | sort -u | sed 's|^|./|')
mkdir -p "$(dirname "$file")"
# All are compiled before the first one runs, so that no compiler runs beside one.
go list -test -export "${packages[@]}" >/dev/null
{
	facts
	go test -run '^$' -bench "$RUN" -v -count "$COUNT" -benchtime "$BENCHTIME" -timeout 2h "${packages[@]}"
} | tee "$file"
