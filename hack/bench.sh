#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0

# Runs the benchmarks, prints their medians and quartiles, and draws docs/performance. The results are in dist/bench.txt, below lines about
# the machine, the date and the versions.
#
# usage: hack/bench.sh              a quick run: MACHINES=100 QUIET=5s COUNT=1 hack/bench.sh
#        hack/bench.sh --report     prints and draws the results of the last run again, from dist/bench.txt
#        hack/bench.sh --help
#
# environment: RUN (.), COUNT (3), BENCHTIME (1s): go test's -bench, -count and -benchtime
#              MACHINES (500 1000 2000 10000), QUIET (60s): parameters of the benchmarks
#              AT_LEAST (3): quartiles of fewer results say nothing, so the page is left as it is

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
file=$PWD/dist/bench.txt

report() {
	go -C hack/tools/docs run ./bench -input "$file" -page "$PWD/docs/performance/README.md" -at-least "${AT_LEAST:-3}"
}

case ${1-} in
"") ;;
--report)
	report
	exit
	;;
--help)
	sed -n '4,/^$/s/^# \{0,1\}//p' "hack/${0##*/}"
	exit
	;;
*) echo "error: $1? see hack/bench.sh --help" >&2; exit 1 ;;
esac

count=${COUNT:-3}
export BENCH_MACHINES=${MACHINES:-500 1000 2000 10000} BENCH_QUIET=${QUIET:-60s}
export BENCH_FEW=100 BENCH_REQUESTS=2000

version() { GOWORK=off go -C "hack/tools/$1" list -m -f '{{.Version}}' "$2"; }

memory() {
	if [[ -r /proc/meminfo ]]; then
		awk '$1 == "MemTotal:" { printf "%.0f GiB\n", $2 / 1048576 }' /proc/meminfo
	fi
}

facts() {
	echo "date: $(date -u +%Y-%m-%d)"
	echo "commit: $(git describe --always --dirty --exclude='*' 2>/dev/null || echo unknown)"
	echo "cores: $(getconf _NPROCESSORS_ONLN)"
	echo "memory: $(memory)"
	echo "go: $(go env GOVERSION | sed 's/^go//')"
	echo "kubernetes: $(version kubernetes k8s.io/kubernetes)"
	echo "cluster-api: $(version cluster-api sigs.k8s.io/cluster-api)"
	echo "count: $count"
	echo "machines: $BENCH_MACHINES"
	echo "quiet: $BENCH_QUIET"
}

programs=$(hack/tools/build.sh --env controlplane tools)
eval "$programs"
mkdir -p "${file%/*}"
# Compiled before the first run, so that no compiler runs next to a benchmark.
go list -test -export ./test/bench >/dev/null
{
	facts
	go test -run '^$' -bench "${RUN:-.}" -v -count "$count" -benchtime "${BENCHTIME:-1s}" -timeout 2h ./test/bench
} | tee "$file"
report
