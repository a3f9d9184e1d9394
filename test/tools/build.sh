#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0

# Builds one set of helper programs into the user's cache and prints the directory that holds them, alone on
# stdout. What is there already is not built again; the directory's name carries the versions in the go.mod files
# beside this script, so that a bump there is a new build.
#
# usage: build.sh controlplane|tools|cluster-api|node|lint|dev|monitoring

set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/heirloom

# Tests run on this machine, whatever the caller cross-compiles for.
GOOS=$(go env GOHOSTOS) GOARCH=$(go env GOHOSTARCH) CGO_ENABLED=0 GOWORK=off
export GOOS GOARCH CGO_ENABLED GOWORK

say() { echo "$*" >&2; }
die() { say "error: $*"; exit 1; }

# version MODULE_DIR MODULE: what that go.mod requires.
version() {
	awk -v module="$2" '{ for (i = 1; i < NF; i++) if ($i == module) { print $(i + 1); exit } }' "$here/$1/go.mod"
}

# programs SET: a line "binary module-directory package roughly-how-long" for each of its programs. The times are
# those of two cores and empty caches, in the order in which they are built.
programs() {
	case $1 in
	controlplane)
		echo "kube-apiserver kubernetes k8s.io/kubernetes/cmd/kube-apiserver 4 min"
		echo "etcd etcd go.etcd.io/etcd/server/v3 20 s"
		;;
	tools)
		echo "kubectl kubernetes k8s.io/kubernetes/cmd/kubectl 30 s"
		echo "kubemark kubernetes k8s.io/kubernetes/cmd/kubemark 60 s"
		echo "helm helm helm.sh/helm/v4/cmd/helm 2 min"
		;;
	cluster-api)
		echo "clusterctl cluster-api-v1.14 sigs.k8s.io/cluster-api/cmd/clusterctl 60 s"
		echo "core cluster-api-v1.14 sigs.k8s.io/cluster-api/core 60 s"
		echo "kubeadm-bootstrap cluster-api-v1.14 sigs.k8s.io/cluster-api/bootstrap/kubeadm 20 s"
		echo "kubeadm-control-plane cluster-api-v1.14 sigs.k8s.io/cluster-api/controlplane/kubeadm 20 s"
		;;
	node)
		echo "kube-controller-manager kubernetes k8s.io/kubernetes/cmd/kube-controller-manager 45 s"
		echo "kube-scheduler kubernetes k8s.io/kubernetes/cmd/kube-scheduler 10 s"
		echo "kubelet kubernetes k8s.io/kubernetes/cmd/kubelet 20 s"
		echo "kube-proxy kubernetes k8s.io/kubernetes/cmd/kube-proxy 10 s"
		;;
	lint)
		echo "golangci-lint golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint 3 min"
		;;
	dev)
		echo "controller-gen dev sigs.k8s.io/controller-tools/cmd/controller-gen 20 s"
		echo "helm-docs helm-docs github.com/norwoodj/helm-docs/cmd/helm-docs 15 s"
		echo "govulncheck dev golang.org/x/vuln/cmd/govulncheck 10 s"
		;;
	monitoring)
		echo "promtool prometheus github.com/prometheus/prometheus/cmd/promtool 3 min"
		;;
	*)
		die "usage: build.sh controlplane|tools|cluster-api|node|lint|dev|monitoring"
		;;
	esac
}

versions() {
	case $1 in
	controlplane) echo "$(version kubernetes k8s.io/kubernetes)-$(version etcd go.etcd.io/etcd/server/v3)" ;;
	tools) echo "$(version kubernetes k8s.io/kubernetes)-$(version helm helm.sh/helm/v4)" ;;
	cluster-api) version cluster-api-v1.14 sigs.k8s.io/cluster-api ;;
	node) version kubernetes k8s.io/kubernetes ;;
	lint) version golangci-lint github.com/golangci/golangci-lint/v2 ;;
	monitoring) version prometheus github.com/prometheus/prometheus ;;
	dev)
		echo "$(version dev sigs.k8s.io/controller-tools)-$(version dev golang.org/x/vuln)-$(version helm-docs github.com/norwoodj/helm-docs)"
		;;
	esac
}

# ready SET DIRECTORY: whether every program of the set is there.
ready() {
	local binary
	while read -r binary _; do
		[[ -x $2/$binary ]] || return 1
	done < <(programs "$1")
}

# build BINARY MODULE_DIR PACKAGE HOW_LONG: into $dir, by a rename, so that nobody ever sees half a program.
build() {
	local started=$SECONDS elapsed said=0 status=0
	say "building $1 $(basename "$dir") (about $4 when nothing is cached) ..."
	temp=$dir/.$1.$$
	# Without a version the API server calls itself v0.0.0.
	local ldflags="-s -w -X k8s.io/component-base/version.gitVersion=$(version kubernetes k8s.io/kubernetes)"
	# promtool tests rules without the service discovery of every cloud; nobody else knows the tag.
	go -C "$here/$2" build -trimpath -tags remove_all_sd -ldflags "$ldflags" -o "$temp" "$3" >"$temp.log" 2>&1 9>&- &
	compiler=$!
	while kill -0 "$compiler" 2>/dev/null; do
		sleep 1
		elapsed=$((SECONDS - started))
		if ((elapsed >= said + 15)); then
			said=$elapsed
			say "  $1: ${elapsed} s"
		fi
	done
	wait "$compiler" || status=$?
	compiler=
	if ((status != 0)); then
		cat "$temp.log" >&2
		die "$1 does not build"
	fi
	mv "$temp" "$dir/$1"
	rm -f "$temp.log"
	say "built $1 in $((SECONDS - started)) s"
}

clean_up() {
	[[ -z $compiler ]] || kill "$compiler" 2>/dev/null || true
	[[ -z $temp ]] || rm -f "$temp" "$temp.log"
}

set=${1:-}
programs "$set" >/dev/null

if [[ $set == controlplane && -n ${KUBEBUILDER_ASSETS:-} ]]; then
	ready controlplane "$KUBEBUILDER_ASSETS" ||
		die "KUBEBUILDER_ASSETS=$KUBEBUILDER_ASSETS lacks kube-apiserver or etcd; unset it to have both built"
	echo "$KUBEBUILDER_ASSETS"
	exit
fi

dir=$cache/$set-$(versions "$set")-$GOOS-$GOARCH
compiler= temp=
trap clean_up EXIT
trap 'exit 130' INT TERM

if ! ready "$set" "$dir"; then
	mkdir -p "$dir"
	# Where there is no flock (macOS) two builds at once are wasteful, but still right.
	exec 9>"$cache/$set.lock"
	if command -v flock >/dev/null; then
		flock 9
	fi
	while read -r binary module package how_long; do
		[[ -x $dir/$binary ]] || build "$binary" "$module" "$package" "$how_long"
	done < <(programs "$set")
fi
echo "$dir"
