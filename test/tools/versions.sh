#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0

# Runs tests on API servers of several versions of Kubernetes, and says at the end how each pair of versions went and what was
# skipped. A pair is MANAGEMENT:WORKLOAD; each is oldest, default or newest, which test/tools/kubernetes* say what they are.
#
# Where both are the same, all tests of test/integration and test/chart run, and the walk of test/e2e. Otherwise only tests of
# workload clusters do.
#
# usage: versions.sh [FLAG-OF-GO-TEST]... [MANAGEMENT:WORKLOAD]...

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

workloads='^Test(NodesAreAdmittedByDefault|NodesOfWorkloadClusters|UnreachableWorkloadClusters|WorkloadClustersCallByURL'
workloads+='|KeysOfWorkloadClusters|AdmissionPolicy|WhatHappensCanBeSeen|ReleaseLeavesNothing|HelmUninstall)$'

flags=() pairs=()
for argument in "$@"; do
	case $argument in
	-*) flags+=("$argument") ;;
	*) pairs+=("$argument") ;;
	esac
done
((${#pairs[@]} > 0)) || pairs=(oldest:oldest newest:newest default:oldest oldest:newest newest:oldest)

# assets VERSION: the directory of its etcd and kube-apiserver.
assets() {
	case $1 in
	default) test/tools/build.sh controlplane ;;
	oldest | newest) test/tools/build.sh "controlplane-$1" ;;
	*) echo "error: there is no version $1; usage: versions.sh [FLAG-OF-GO-TEST]... [oldest|default|newest:oldest|default|newest]..." >&2; exit 1 ;;
	esac
}

# run PAIR FLAG...: go test with these flags on that pair.
run() {
	KUBEBUILDER_ASSETS=$(assets "${1%:*}") HEIRLOOM_WORKLOAD_ASSETS=$(assets "${1#*:}") \
		GOGC=300 go test -race -count=1 -p=1 -timeout=60m -v "${@:2}" ${flags[@]+"${flags[@]}"}
}

# tests PAIR: what belongs to it.
tests() {
	if [[ ${1%:*} != "${1#*:}" ]]; then
		run "$1" -parallel=4 -run "$workloads" ./test/integration/
		return
	fi
	local status=0
	run "$1" -parallel=4 ./test/integration/ ./test/chart/ || status=1
	run "$1" -run '^TestWalk$' ./test/e2e/ || status=1
	return "$status"
}

# count LOG WORD: how many top-level tests ended like that.
count() { grep -c "^--- $2: " "$1" || true; }

log=$(mktemp)
trap 'rm -f "$log"' EXIT
summary=() status=0
for pair in "${pairs[@]}"; do
	management=$("$(assets "${pair%:*}")/kube-apiserver" --version) workload=$("$(assets "${pair#*:}")/kube-apiserver" --version)
	printf '\n=== management: %s; workload clusters: %s\n' "$management" "$workload"
	started=$SECONDS
	tests "$pair" 2>&1 | tee "$log" || status=1
	# A package that does not build, or whose TestMain gives up, has no failed test.
	broken=$(grep -cE $'^FAIL\t' "$log" || true)
	summary+=("$(printf '%-18s %-18s %3d passed, %d failed (in %d packages), %d skipped, %d min %02d s' "$management" "$workload" \
		"$(count "$log" PASS)" "$(count "$log" FAIL)" "$broken" "$(count "$log" SKIP)" $(((SECONDS - started) / 60)) $(((SECONDS - started) % 60)))")
	while read -r line; do
		summary+=("  $line")
	done < <(grep -E '^ *--- (FAIL|SKIP): ' "$log" || true; grep -oE '_test\.go:[0-9]+: Kubernetes .* does not serve .*' "$log" | sed 's/^[^ ]* //' | sort -u || true)
done

printf '\n%-18s %s\n' management workload
printf '%s\n' "${summary[@]}"
exit "$status"
