#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0

# Builds or downloads sets of helper programs into the user's cache, and prints the directory of each set, alone on stdout; with --env, as
# lines to eval. Existing programs are not built again; the name of a directory has the versions in the go.mod files next to this script, so
# that a bump there makes a new directory.
#
# Control planes are downloaded with setup-envtest if its index can be reached, which takes seconds. All other programs are built from Go
# modules, as are control planes elsewhere: this takes minutes and always works.
#
# usage: build.sh [--env] SET...
#        build.sh --help

set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/heirloom

# Tests run on this machine, even if the caller cross-compiles for another machine.
GOOS=$(go env GOHOSTOS) GOARCH=$(go env GOHOSTARCH) CGO_ENABLED=0 GOWORK=off
export GOOS GOARCH CGO_ENABLED GOWORK

say() { echo "$*" >&2; }
die() { say "error: $*"; exit 1; }

# version MODULE_DIR MODULE: the version that the go.mod file requires.
version() {
	awk -v module="$2" '{ for (i = 1; i < NF; i++) if ($i == module) { print $(i + 1); exit } }' "$here/$1/go.mod"
}

# programs SET: a line "binary module-directory package" for each of its programs.
programs() {
	case $1 in
	controlplane)
		echo "kube-apiserver kubernetes k8s.io/kubernetes/cmd/kube-apiserver"
		echo "etcd kubernetes go.etcd.io/etcd/server/v3"
		;;
	controlplane-oldest | controlplane-newest)
		echo "kube-apiserver kubernetes-${1#*-} k8s.io/kubernetes/cmd/kube-apiserver"
		echo "etcd kubernetes go.etcd.io/etcd/server/v3"
		;;
	tools)
		echo "kubectl kubernetes k8s.io/kubernetes/cmd/kubectl"
		echo "kubemark kubernetes k8s.io/kubernetes/cmd/kubemark"
		;;
	node)
		echo "kube-controller-manager kubernetes k8s.io/kubernetes/cmd/kube-controller-manager"
		echo "kube-scheduler kubernetes k8s.io/kubernetes/cmd/kube-scheduler"
		echo "kubelet kubernetes k8s.io/kubernetes/cmd/kubelet"
		echo "kube-proxy kubernetes k8s.io/kubernetes/cmd/kube-proxy"
		;;
	helm) echo "helm dev helm.sh/helm/v4/cmd/helm" ;;
	helm3) echo "helm dev helm.sh/helm/v3/cmd/helm" ;;
	language) echo "vale dev github.com/vale-cli/vale/v3/cmd/vale" ;;
	cluster-api)
		echo "clusterctl cluster-api sigs.k8s.io/cluster-api/cmd/clusterctl"
		echo "core cluster-api sigs.k8s.io/cluster-api/core"
		echo "kubeadm-bootstrap cluster-api sigs.k8s.io/cluster-api/bootstrap/kubeadm"
		echo "kubeadm-control-plane cluster-api sigs.k8s.io/cluster-api/controlplane/kubeadm"
		;;
	capd) echo "capd cluster-api sigs.k8s.io/cluster-api/test/infrastructure/docker" ;;
	lint) echo "golangci-lint golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint" ;;
	dev)
		echo "helm-docs dev github.com/norwoodj/helm-docs/cmd/helm-docs"
		echo "govulncheck dev golang.org/x/vuln/cmd/govulncheck"
		echo "actionlint dev github.com/rhysd/actionlint/cmd/actionlint"
		;;
	envtest) echo "setup-envtest dev sigs.k8s.io/controller-runtime/tools/setup-envtest" ;;
	monitoring) echo "promtool prometheus github.com/prometheus/prometheus/cmd/promtool" ;;
	report) echo "gotestsum dev gotest.tools/gotestsum" ;;
	site) echo "hugo docs github.com/gohugoio/hugo" ;;
	freeze) echo "freeze docs github.com/charmbracelet/freeze" ;;
	*) die "there is no set $1; usage: build.sh [--env] controlplane[-oldest|-newest]|tools|node|helm|helm3|language|cluster-api|capd|lint|dev|envtest|monitoring|report|site|freeze ..." ;;
	esac
}

# versions SET: the versions in the name of its directory.
versions() {
	case $1 in
	controlplane*) echo "$(version "kubernetes${1#controlplane}" k8s.io/kubernetes)-$(version kubernetes go.etcd.io/etcd/server/v3)" ;;
	tools | node) version kubernetes k8s.io/kubernetes ;;
	helm) version dev helm.sh/helm/v4 ;;
	helm3) version dev helm.sh/helm/v3 ;;
	language) version dev github.com/vale-cli/vale/v3 ;;
	cluster-api | capd) version cluster-api sigs.k8s.io/cluster-api ;;
	lint) version golangci-lint github.com/golangci/golangci-lint/v2 ;;
	monitoring) version prometheus github.com/prometheus/prometheus ;;
	report) version dev gotest.tools/gotestsum ;;
	site) version docs github.com/gohugoio/hugo ;;
	freeze) version docs github.com/charmbracelet/freeze ;;
	envtest) version dev sigs.k8s.io/controller-runtime/tools/setup-envtest ;;
	dev)
		echo "$(version dev github.com/norwoodj/helm-docs)-$(version dev golang.org/x/vuln)-$(version dev github.com/rhysd/actionlint)"
		;;
	esac
}

# directory SET: the directory of its programs, even before they are built.
directory() {
	if [[ $1 == controlplane && -n ${KUBEBUILDER_ASSETS:-} ]]; then
		echo "$KUBEBUILDER_ASSETS"
	else
		echo "$cache/$1-$(versions "$1")-$GOOS-$GOARCH"
	fi
}

# takes MODULE_DIR: roughly how long its programs take to build, on two cores, when nothing is cached.
takes() {
	case $1 in
	kubernetes) echo "5 to 7 min" ;;
	kubernetes-*) echo "3 to 5 min" ;;
	cluster-api | dev | golangci-lint | prometheus) echo "3 min" ;;
	*) echo "1 min" ;;
	esac
}

# missing SET...: the lines of "programs" whose binary does not exist, each with its directory in front.
missing() {
	local set dir binary rest
	for set in "$@"; do
		dir=$(directory "$set")
		while read -r binary rest; do
			[[ -x $dir/$binary ]] || echo "$dir $binary $rest"
		done < <(programs "$set")
	done
}

# cplusplus installs a C++ compiler from the distribution's packages, if root and apt-get can.
cplusplus() {
	[[ -z $(type -P "${CXX:-g++}") ]] || return 0
	[[ $(id -u) == 0 && -n $(type -P apt-get) ]] || die "install g++ to build vale"
	say "installing g++"
	{ apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends g++; } >>"$log" 2>&1 </dev/null ||
		{ tail -n 5 "$log" >&2; die "apt-get cannot install g++ here"; }
}

# compile MODULE_DIR LOG TARGET PACKAGE...: builds the packages into a directory and prints the progress.
compile() {
	local module=$1 log=$2 target=$3 started=$SECONDS said=$SECONDS all kubernetes status=0
	shift 3
	if [[ $* == */vale ]]; then # Vale's parsers of source code are written in C and C++.
		local -x CGO_ENABLED=1
		cplusplus
	fi
	kubernetes=$(version "$module" k8s.io/kubernetes)
	all=$(go -C "$here/$module" list -deps "$@" 2>>"$log" | wc -l) || { cat "$log" >&2; die "the packages of $module cannot be loaded"; }
	# Without a version, the API server reports v0.0.0. promtool tests rules without the service discovery of every cloud; no other program
	# knows the tag. The compiler's flag is the flag of hack/build.sh, for the same reason, so that packages are shared.
	go -C "$here/$module" build -v -trimpath -tags remove_all_sd -o "$target/" -gcflags all=-dwarf=false \
		-ldflags "-s -w${kubernetes:+ -X k8s.io/component-base/version.gitVersion=$kubernetes}" \
		"$@" >>"$log" 2>&1 9>&- &
	compiler=$!
	while kill -0 "$compiler" 2>/dev/null; do
		sleep 0.5
		if ((SECONDS >= said + 15)); then
			said=$SECONDS
			say "  $((SECONDS - started)) s: $(grep -c . "$log") of at most $all packages compiled"
		fi
	done
	wait "$compiler" || status=$?
	compiler=
	((status == 0)) || { cat "$log" >&2; die "the programs of $module do not build"; }
}

# build PART MODULE_DIR: builds the programs that stdin lists ("directory binary module-directory package"), all programs of one module at
# once, as they share most packages. It renames finished programs, so that nobody ever sees half a program.
build() {
	local part=$1 module=$2 started=$SECONDS dir binary package names=() packages=() lines=()
	while read -r dir binary _ package; do
		names+=("$binary") packages+=("$package") lines+=("$dir $binary $package")
	done
	say "building $part: $(IFS=,; echo "${names[*]}" | sed 's/,/, /g') (about $(takes "$module") on two cores when nothing is cached) ..."
	temp=$(mktemp -d "$cache/.build.XXXXXX")
	compile "$module" "$temp/log" "$temp" "${packages[@]}"
	for line in "${lines[@]}"; do
		read -r dir binary package <<<"$line"
		mkdir -p "$dir"
		mv "$temp/$(output "$package")" "$dir/$binary"
	done
	rm -rf "$temp"
	temp=
	say "built $part in $((SECONDS - started)) s"
}

# output PACKAGE: the name that the go command gives its program.
output() {
	local name=${1%/v[0-9]}
	echo "${name##*/}"
}

# parts: puts the name of its build in front of each line of stdin. Programs of one module to which the go command gives the same name are
# built one after the other.
parts() {
	awk '{ name = $4; sub("/v[0-9]+$", "", name); sub(".*/", "", name); print $3 ":" ++seen[$3, name], $0 }'
}

# reachable: whether the index of setup-envtest may be reachable; a proxy may reach it. If it is not, setup-envtest need not be built.
reachable() {
	[[ -z ${HEIRLOOM_ENVTEST_INDEX-}${HTTPS_PROXY-}${https_proxy-} ]] && command -v timeout >/dev/null || return 0
	timeout 5 bash -c 'exec 3<>/dev/tcp/raw.githubusercontent.com/443' 2>/dev/null
}

# download SET: downloads kube-apiserver and etcd as Kubernetes releases them for tests, for the default set also kubectl. Fails if they
# cannot be downloaded.
download() {
	local kubernetes assets minor limit=()
	kubernetes=$(version "kubernetes${1#controlplane}" k8s.io/kubernetes)
	minor=${kubernetes#v} minor=${minor%.*}
	reachable || return 1
	bring envtest
	say "downloading kube-apiserver, etcd and kubectl $minor ..."
	! command -v timeout >/dev/null || limit=(timeout 120)
	assets=$(${limit[@]+"${limit[@]}"} "$(directory envtest)/setup-envtest" use "$minor.x!" --bin-dir "$cache/envtest" -p path \
		${HEIRLOOM_ENVTEST_INDEX:+--index "$HEIRLOOM_ENVTEST_INDEX"} 2>/dev/null) || return 1
	mkdir -p "$(directory "$1")" "$(directory tools)"
	install -m 0755 "$assets/kube-apiserver" "$assets/etcd" "$(directory "$1")/" || return 1
	[[ $1 != controlplane ]] || install -m 0755 "$assets/kubectl" "$(directory tools)/"
}

# bring SET...: builds the missing programs of the sets.
bring() {
	local plan part count=0 total
	plan=$(missing "$@" | parts)
	[[ -n $plan ]] || return 0
	total=$(awk '{ print $1 }' <<<"$plan" | sort -u | wc -l)
	while read -r part; do
		count=$((count + 1))
		build "$count of $total" "${part%:*}" < <(awk -v part="$part" '$1 == part { $1 = ""; print }' <<<"$plan")
	done < <(awk '!seen[$1]++ { print $1 }' <<<"$plan")
}

clean_up() {
	[[ -z $compiler ]] || kill "$compiler" 2>/dev/null || true
	[[ -z $temp ]] || rm -rf "$temp"
}

if [[ ${1-} == --help ]]; then
	sed -n '/^# usage/,/^$/s/^# *//p' "$0"
	exit
fi
environment=
if [[ ${1-} == --env ]]; then
	environment=yes
	shift
fi
(($# > 0)) || die "no set is named"
for set in "$@"; do
	programs "$set" >/dev/null
done

compiler='' temp=''
trap clean_up EXIT
trap 'exit 130' INT TERM

if [[ -n $(missing "$@") ]]; then
	[[ " $* " != *" controlplane "* || -z ${KUBEBUILDER_ASSETS:-} || -z $(missing controlplane) ]] ||
		die "KUBEBUILDER_ASSETS=$KUBEBUILDER_ASSETS lacks kube-apiserver or etcd; unset it to have both downloaded or built"
	mkdir -p "$cache"
	# Where there is no flock (macOS) two builds at once are wasteful, but still right.
	exec 9>"$cache/build.lock"
	if command -v flock >/dev/null; then
		flock 9
	fi
	for set in "$@"; do
		if [[ $set == controlplane* && -n $(missing "$set") && ${HEIRLOOM_DOWNLOAD:-yes} == yes ]]; then
			download "$set" || say "kube-apiserver, etcd and kubectl cannot be downloaded from here, so they are built"
		fi
	done
	bring "$@"
fi

for set in "$@"; do
	if [[ -z $environment ]]; then
		directory "$set"
		continue
	fi
	case $set in
	controlplane*) name=KUBEBUILDER_ASSETS ;;
	cluster-api) name=HEIRLOOM_CLUSTER_API ;;
	*) name=HEIRLOOM_$(tr '[:lower:]' '[:upper:]' <<<"$set") ;;
	esac
	printf 'export %s=%q\n' "$name" "$(directory "$set")"
done
