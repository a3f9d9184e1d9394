#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0

# Runs the benchmarks, and prints a table of medians and quartiles, as docs/performance has it. dist/bench.txt has the results.
#
# usage: hack/bench.sh              a quick run: MACHINES=100 COUNT=1 hack/bench.sh
#        hack/bench.sh --help
#
# environment: RUN (.), COUNT (3), BENCHTIME (1s): go test's -bench, -count and -benchtime
#              MACHINES (500 10000): how many Machines the benchmark of memory has
#              SCENARIO=clusters: only the benchmark of many workload clusters, by default once, with CLUSTERS (100) of NODES (6) each, and
#              MEMORY (off): the memory limit of Heirloom (GOMEMLIMIT)
#              SCENARIO=virtual: only the benchmark of a fleet in virtual time, by default once, with CLUSTERS (1000) of NODES (6) each;
#              RUN=start or RUN=roll-out: only these parts

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if (($# > 0)); then
	sed -n '4,/^$/s/^# \{0,1\}//p' "hack/${0##*/}"
	exit
fi
file=$PWD/dist/bench.txt
export BENCH_MACHINES=${MACHINES:-500 10000} BENCH_REQUESTS=10000
package=./test/bench
case ${SCENARIO:-} in
'')
	run=${RUN:-.} count=${COUNT:-3}
	printf -v command 'RUN=%q COUNT=%s MACHINES=%q' "$run" "$count" "$BENCH_MACHINES"
	;;
clusters)
	run='^BenchmarkClusters$' count=${COUNT:-1}
	export BENCH_CLUSTERS=${CLUSTERS:-100} BENCH_NODES=${NODES:-6} BENCH_MEMORY=${MEMORY:-off}
	command="SCENARIO=clusters CLUSTERS=$BENCH_CLUSTERS NODES=$BENCH_NODES MEMORY=$BENCH_MEMORY COUNT=$count"
	;;
virtual)
	run="^BenchmarkVirtualFleet\$//${RUN:-.}" count=${COUNT:-1} package=./pkg/controllers BENCHTIME=${BENCHTIME:-1x}
	export BENCH_CLUSTERS=${CLUSTERS:-1000} BENCH_NODES=${NODES:-6}
	command="SCENARIO=virtual ${RUN:+RUN=$RUN }CLUSTERS=$BENCH_CLUSTERS NODES=$BENCH_NODES COUNT=$count"
	;;
*)
	echo "error: there is no scenario $SCENARIO; usage: make bench [SCENARIO=clusters|virtual]" >&2
	exit 2
	;;
esac

version() { GOWORK=off go -C "hack/tools/$1" list -m -f '{{.Version}}' "$2"; }

# table prints the median and the quartiles of each metric of each benchmark. The names of benchmarks get their spaces back.
table() {
	printf '\n| Benchmark | Metric | Median | Quartiles |\n| --- | --- | --: | --: |\n'
	awk '/^Benchmark/ {
		name = $1; sub(/^Benchmark/, "", name); sub(/-[0-9]+$/, "", name); gsub("_", " ", name)
		for (i = 3; i < NF; i += 2) print name "\t" $(i + 1) "\t" $i
	}' "$file" | sort -t $'\t' -k 1,2 -k 3,3g | awk -F '\t' '
		function quantile(q, at, i) { at = 1 + q * (n - 1); i = int(at); return i < n ? v[i] + (at - i) * (v[i + 1] - v[i]) : v[i] }
		function text(q) { return sprintf(quantile(q) < 1000 ? "%.3g" : "%.0f", quantile(q)) }
		function row() { if (n) printf "| %s | %s | %s | %s–%s |\n", name, metric, text(0.5), text(0.25), text(0.75) }
		$1 != name || $2 != metric { row(); name = $1; metric = $2; n = 0 }
		{ v[++n] = $3 }
		END { row() }'
	printf '\n`make bench %s`: %s, commit %s, %s cores, Go %s, Kubernetes %s, Cluster API %s.\n' \
		"$command" "$(date -u +%Y-%m-%d)" "$(git describe --always --dirty --exclude='*' 2>/dev/null || echo unknown)" \
		"$(getconf _NPROCESSORS_ONLN)" "$(go env GOVERSION | sed 's/^go//')" \
		"$(version kubernetes k8s.io/kubernetes)" "$(version cluster-api sigs.k8s.io/cluster-api)"
}

programs=$(hack/tools/build.sh --env controlplane tools)
eval "$programs"
mkdir -p "${file%/*}"
# Flags of hack/build.sh, so that benchmarks and program share compiled packages.
flags=(-tags grpcnotrace -trimpath -gcflags all=-dwarf=false)
# Compiled before the first run, so that no compiler runs next to a benchmark.
CGO_ENABLED=0 go list "${flags[@]}" -test -export "$package" >/dev/null
CGO_ENABLED=0 go test "${flags[@]}" -run '^$' -bench "$run" -count "$count" -benchtime "${BENCHTIME:-1s}" -timeout 2h "$package" | tee "$file"
table
