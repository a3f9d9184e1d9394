#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0

# Runs groups of tests, two groups at a time, and prints the failed tests, the skipped tests and the number of tests at the end.
#
# usage: hack/test.sh GROUP... [-- FLAG...]     flags of go test, such as -run '^TestRights$'
#        hack/test.sh all
#        hack/test.sh --help
#
#   unit          tests that need nothing but Go, with the race detector
#   integration   on a real API server, with the race detector in the program; alerts, runbooks and dashboard with Prometheus' own code
#   walk          one walk from the chart to the Node
#   e2e           the built programs with Cluster API's managers; a release, built twice and compared
#   cluster       image and chart in a real cluster of one Node (Linux and root; otherwise skipped)
#   bench         each benchmark once, with few objects: a benchmark that fails measures nothing
#   site          builds the site of the documentation, of the work tree and of each release
#
# environment: SUMMARY=FILE     also writes the summary there
#              GOTESTFLAGS      further flags of go test
#              GOTESTSUM_FORMAT the format of the progress: pkgname, testname, standard-verbose, ...
#
# all runs the groups of CI: every group except walk, which is a part of e2e.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [[ ${1---help} == --help ]]; then
	sed -n '4,/^$/s/^# \{0,1\}//p' hack/test.sh
	exit
fi

groups=()
while (($# > 0)) && [[ $1 != -- ]]; do
	case $1 in
	# The longest first.
	all) groups+=(e2e cluster integration unit bench site) ;;
	unit | integration | walk | e2e | cluster | bench | site) groups+=("$1") ;;
	*) echo "error: there is no group $1; see hack/test.sh --help" >&2; exit 1 ;;
	esac
	shift
done
[[ ${1-} != -- ]] || shift
read -ra flags <<<"${GOTESTFLAGS-}"
flags+=("$@")
flags+=(-short) # conformance only with the newest release of Cluster API

# The API servers of tests live for minutes and keep most of their memory, so a garbage collector finds little. The race detector needs cgo.
export GOGC=300 GORACE=${GORACE:-atexit_sleep_ms=0} GOTESTSUM_FORMAT=${GOTESTSUM_FORMAT:-pkgname} GOTESTSUM_FORMAT_ICONS=text
race=(env CGO_ENABLED=1 go test -json -race -trimpath)
# The flags of the program (hack/build.sh), so that tests and program share compiled packages. The program of the integration tests has the
# race detector, and shares packages with the unit tests.
plain=(env CGO_ENABLED=0 go test -json -tags grpcnotrace -trimpath -gcflags all=-dwarf=false)
# The results of these tests depend on programs that the test cache does not see.
fresh=("${plain[@]}" -count=1 -timeout=60m)

results=$(mktemp -d)
export HEIRLOOM_API_SERVERS=$results/api-servers # test/controlplane adds a line for each API server that it starts
: >"$HEIRLOOM_API_SERVERS"
jobs=()
clean_up() {
	local job
	for job in ${jobs[@]+"${jobs[@]}"}; do
		kill -TERM "$job" 2>/dev/null || true # so that nothing else begins
		kill -INT -- "-$job" 2>/dev/null || true
	done
	wait
	rm -rf "$results"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

# programs SET...: exports the directories of these sets of helper programs, after missing programs have been built or downloaded.
programs() {
	local set
	set=$(hack/tools/build.sh --env "$@")
	eval "$set"
}

# run NAME DIRECTORY COMMAND...: runs go test in the directory, prints its progress, and keeps its output for the summary.
run() {
	local file=$results/$1.json
	(cd "$2" && "$HEIRLOOM_REPORT/gotestsum" --raw-command --format-hide-empty-pkg --hide-summary=all --jsonfile "$file" -- "${@:3}" ${flags[@]+"${flags[@]}"}) ||
		echo "$1" >>"$results/failed"
}

# check NAME COMMAND...: runs a check that is not a Go test.
check() { "${@:2}" || echo "$1" >>"$results/failed"; }

unit() {
	local directories=() directory
	# The tests of pkg/controllers and of the simulated world take longest, so they begin first.
	for directory in pkg/controllers test/sim/world test/sim/conformance test/sim/apiserver pkg cmd webhooks certs test/rules test/markdown \
		test/providers; do
		[[ ! -d $directory ]] || directories+=("./$directory/...")
	done
	# Parallel tests mostly wait, and so do some packages, hence -p. Each package is measured by its own tests: -coverpkg would compile every
	# package once more for every test.
	run unit . "${race[@]}" -p=4 -parallel=4 -coverprofile="$results/coverage" "${directories[@]}"
}

integration() {
	local packages=(./test/integration ./test/chart ./test/controlplane)
	[[ ! -d test/sim/equal ]] || packages+=(./test/sim/equal)
	# These tests mostly wait, also for API servers that other tests start, hence -parallel.
	run integration . "${fresh[@]}" -p=1 -parallel=6 "${packages[@]}"
	check promtool "$HEIRLOOM_MONITORING/promtool" check rules --lint=all --lint-fatal deploy/monitoring/alerts.yaml
	check promtool "$HEIRLOOM_MONITORING/promtool" test rules deploy/monitoring/alerts_test.yaml
	run monitoring hack/tools/prometheus "${fresh[@]}" ./...
}

walk() { run walk . "${fresh[@]}" -run '^TestWalk$' ./test/e2e/; }

e2e() {
	run e2e . "${fresh[@]}" -p=1 ./test/e2e/ ./test/release/
}

cluster() {
	build_cluster
	run cluster . "${fresh[@]}" -p=1 ./test/cluster/...
}

# build_cluster builds the programs and the image of the tests in a cluster. If no cluster can run here, prepare.sh says why, and the tests
# are skipped.
build_cluster() {
	test/cluster/prepare.sh || return 0
	local version
	version=$(awk '$1 == "appVersion:" { print $2 }' deploy/chart/heirloom/Chart.yaml)
	VERSION=$version PLATFORMS=linux-$(go env GOHOSTARCH) hack/release.sh image
	CGO_ENABLED=0 go -C hack/tools/dev build -trimpath -gcflags all=-dwarf=false -o "$PWD/bin/cert-manager" ./cert-manager
	programs node
	HEIRLOOM_IMAGE=$PWD/dist/heirloom-$version-linux-$(go env GOHOSTARCH).tar
	export HEIRLOOM_IMAGE
}

bench() {
	# A benchmark has no verdict of its own in JSON, and would count as failed.
	local command=() word
	for word in "${fresh[@]}"; do [[ $word == -json ]] || command+=("$word"); done
	check bench "${command[@]}" -run '^$' -bench . -benchtime 1x ./test/bench
}

site() { check site hack/site.sh "$PWD/dist/site"; }

# prepare GROUP...: builds all programs of the tests before the first test runs, where you see the progress.
prepare() {
	local group
	[[ $* == unit ]] || make --no-print-directory build
	programs report
	for group in "$@"; do
		case $group in
		integration) programs controlplane tools helm helm3 monitoring ;;
		bench) programs controlplane tools ;;
		walk | e2e) programs controlplane tools helm cluster-api capd ;;
		cluster) programs controlplane tools helm cluster-api capd ;;
		site) programs site ;;
		esac
	done
}

# coverage prints how many statements of the program the unit tests of their packages reach.
coverage() {
	awk '/\/(pkg|cmd|webhooks|certs)\/[^ ]*:/ { all += $2; if ($3) reached += $2 }
		END { if (all) printf "coverage: %.1f %% of the statements of the program, by unit tests\n", 100 * reached / all }' "$results/coverage"
}

# summary prints the results of all tests, and the number of API servers that they started.
summary() {
	local said
	: >"$results/said"
	! compgen -G "$results/*.json" >/dev/null ||
		"$HEIRLOOM_REPORT/gotestsum" --raw-command --format none -- cat "$results"/*.json >"$results/said" || true
	said=$(sed -nE 's/^DONE //p' "$results/said" | tail -n 1)
	cat "$results/said"
	printf 'API servers started: %d\n' "$(wc -l <"$HEIRLOOM_API_SERVERS")"
	[[ ! -e $results/coverage ]] || coverage
	[[ ! -s $results/failed ]] || printf 'failed: %s\n' "$(sort -u "$results/failed" | paste -s -d ' ')"
	[[ $said =~ ^[1-9] || ${groups[*]} =~ ^(bench|site| )+$ ]] || echo "not a single test has run: that is a failure" | tee "$results/failed"
}

prepare "${groups[@]}"
# Each group runs in its own process group, which does not ignore Ctrl-C.
set -m
for group in "${groups[@]}"; do
	((${#jobs[@]} < 2)) || wait -n || true
	{ "$group"; echo >"$results/$group.ended"; } </dev/null &
	jobs+=("$!")
	mapfile -t jobs < <(jobs -pr)
done
wait || true
for group in "${groups[@]}"; do
	[[ -e $results/$group.ended ]] || echo "$group" >>"$results/failed"
done
summary | tee "${SUMMARY:-/dev/null}"
[[ ! -e $results/failed ]]
