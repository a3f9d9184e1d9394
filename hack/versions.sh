#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0

# Runs tests on API servers of several versions of Kubernetes, and prints the result of each pair of versions at the end. A pair is
# MANAGEMENT:WORKLOAD; each is oldest, default or newest, as defined in hack/tools/kubernetes*.
#
# If both are the same, the integration tests and the walk run. Otherwise only tests of workload clusters run.
#
# usage: hack/versions.sh [MANAGEMENT:WORKLOAD]...     (default: all pairs that are supported)
#        hack/versions.sh --help

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [[ ${1-} == --help ]]; then
	sed -n '4,/^$/s/^# \{0,1\}//p' "hack/${0##*/}"
	exit
fi
(($# > 0)) || set -- oldest:oldest newest:newest default:oldest oldest:newest newest:oldest

workloads='^Test(NodesAreAdmittedByDefault|UnreachableWorkloadClusters|WorkloadClustersCallByURL|AdmissionPolicy|WhatHappensCanBeSeen'
workloads+='|HelmUninstall)$'

# assets VERSION: the directory of its etcd and kube-apiserver.
assets() {
	case $1 in
	default) hack/tools/build.sh controlplane ;;
	oldest | newest) hack/tools/build.sh "controlplane-$1" ;;
	*) echo "error: \"$1\" is not oldest, default or newest; see hack/versions.sh --help" >&2; return 1 ;;
	esac
}

summaries=$(mktemp -d)
trap 'rm -rf "$summaries"' EXIT
status=0
for pair in "$@"; do
	management=$(assets "${pair%:*}") workload=$(assets "${pair#*:}")
	versions="$pair: $("$management/kube-apiserver" --version) with $("$workload/kube-apiserver" --version)"
	printf '\n=== %s\n' "$versions"
	tests=(integration walk)
	[[ ${pair%:*} == "${pair#*:}" ]] || tests=(integration -- -run "$workloads")
	KUBEBUILDER_ASSETS=$management HEIRLOOM_WORKLOAD_ASSETS=$workload SUMMARY=$summaries/$pair hack/test.sh "${tests[@]}" || status=1
	sed -i "1i === $versions" "$summaries/$pair"
done
cat "$summaries"/*
exit "$status"
