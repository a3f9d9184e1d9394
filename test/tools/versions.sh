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
	oldest:* | default:* | newest:*) pairs+=("$argument") ;;
	*)
		echo "error: \"$argument\" is no flag (-run=NAME, not -run NAME), and no pair of oldest, default and newest, such as oldest:newest" >&2
		exit 1
		;;
	esac
done
((${#pairs[@]} > 0)) || pairs=(oldest:oldest newest:newest default:oldest oldest:newest newest:oldest)

# assets VERSION: the directory of its etcd and kube-apiserver.
assets() {
	case $1 in
	default) test/tools/build.sh controlplane ;;
	oldest | newest) test/tools/build.sh "controlplane-$1" ;;
	*)
		echo "error: \"$1\" is not oldest, default or newest; usage: versions.sh [FLAG-OF-GO-TEST]... [MANAGEMENT:WORKLOAD]..." >&2
		exit 1
		;;
	esac
}

# run PAIR FLAG...: go test with these flags on that pair.
run() {
	KUBEBUILDER_ASSETS=$(assets "${1%:*}") HEIRLOOM_WORKLOAD_ASSETS=$(assets "${1#*:}") \
		GOGC=300 go test -race -trimpath -count=1 -p=1 -timeout=60m -v "${@:2}" ${flags[@]+"${flags[@]}"}
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

# notable LOG: which tests failed or were skipped, these with their reason, which is the line above.
notable() {
	awk '/^ *--- FAIL: / { print } /^ *--- SKIP: / { print; print above } { above = $0 }' "$1"
}

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
	summary+=("$(printf '%-20s %-20s %d passed, %d failed, %d skipped, %d packages failed, %d s' "$management" "$workload" \
		"$(count "$log" PASS)" "$(count "$log" FAIL)" "$(count "$log" SKIP)" "$broken" $((SECONDS - started)))")
	while read -r line; do
		summary+=("  $line")
	done < <(notable "$log")
done

printf '\n%-20s %s\n' management workload
printf '%s\n' "${summary[@]}"
exit "$status"
