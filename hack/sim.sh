#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0

# Plays simulated worlds. Each has a process of its own, built with an overlay so that it repeats itself (for its limits, see
# test/sim/world/doc.go), and there is one process for each core. A world that breaks a promise does not keep the next worlds from playing.
#
# usage: hack/sim.sh            plays SEEDS (1000) worlds, from SEED (1) on; SEED alone plays this world, and prints what was written
#        hack/sim.sh --help
#
# environment: FILE=PATH     plays this schedule, as a world that failed prints it, instead of seeds
#              SEED=N        the first seed; commit: a number from the hash of the commit; date: a number from the date. With these two,
#                            all schedules in test/sim/world/testdata/schedules are played first
#              SEEDS=N       how many seeds
#              MINUTES=N     begins no world after this time
#              TWICE=N       plays the first N worlds twice, and compares what was written
#              SHARD=N       with SEED=date: machines with different numbers play different seeds
#              SIM_LOG=1     prints the logs of the programs, too
#              SHRINK=TIME   how long a world that failed is shrunk (default: 2m)
#              FAILED=DIR    keeps the output of worlds that failed there (default: dist/sim)

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [[ ${1-} == --help ]]; then
	sed -n '4,/^$/s/^# \{0,1\}//p' hack/sim.sh
	exit
fi

count=${SEEDS:-$([[ -n ${SEED-}${FILE-} ]] && echo 1 || echo 1000)} twice=${TWICE:-0} failed=${FAILED:-dist/sim}
schedules=()
case ${SEED:-1} in commit | date) schedules=("$PWD"/test/sim/world/testdata/schedules/*.yaml) ;; esac
if [[ -n ${FILE-} ]]; then
	schedules=("$(realpath "$FILE")") count=0
fi
case ${SEED:-1} in
commit) first=$((16#$(git rev-parse HEAD | cut -c 1-12))) ;;
date) first=$(($(date -u +%Y%m%d) * 1000000 + ${SHARD:-0} * 100000)) ;;
*) first=${SEED:-1} ;;
esac
[[ $first =~ ^[0-9]+$ && $count =~ ^[0-9]+$ && $twice =~ ^[0-9]+$ && ${MINUTES:-0} =~ ^[0-9]+$ ]] ||
	{ echo "error: SEED, SEEDS, TWICE and MINUTES are numbers; see hack/sim.sh --help" >&2; exit 2; }

work=$(mktemp -d)
trap 'wait; rm -rf "$work"' EXIT
trap 'for job in $(jobs -pr); do kill -TERM -- "-$job" 2>/dev/null || true; done; exit 130' INT TERM
go run ./test/sim/overlay "$work" >&2
# The flags of the program (hack/build.sh), so that it shares compiled packages with tests where there is no overlay.
CGO_ENABLED=0 go test -c -overlay "$work/overlay.json" -tags grpcnotrace -trimpath -gcflags all=-dwarf=false -ldflags '-s -w' -o "$work/world" ./test/sim/world >&2
if ! grep -q runtime "$work/overlay.json"; then
	((twice == 0)) || echo "warning: no world is played twice" >&2
	twice=0
fi
modules=$(go env GOMODCACHE)
# A world that spins can be ended by a signal only.
limit=()
! command -v timeout >/dev/null || limit=(timeout --foreground -s QUIT 15m)

# play SEED FILE OUTPUT: plays the schedule of a file, or of the seed if there is none, without the parts of the environment that differ
# between machines. The output has neither the times of the machine nor its process id. A world that grows without end is collected.
play() {
	local verdict=0 test='^TestSim$'
	[[ -z $2 ]] || test='^TestSchedules$'
	(
		cd test/sim/world
		env -i PATH="$PATH" HOME="$HOME" GOMODCACHE="$modules" GOMAXPROCS=1 GOGC=off GOMEMLIMIT=3GiB SIM_SEED="$1" SIM_SEEDS=1 SIM_FILE="$2" SIM_SHRINK="${SHRINK-}" \
			${SIM_LOG:+SIM_LOG="$SIM_LOG"} ${limit[@]+"${limit[@]}"} "$work/world" -test.run "$test" -test.v -test.timeout=14m 2>&1
	) >"$3.raw" || verdict=1
	sed -E -e 's/^( *--- (PASS|FAIL): Test[^ ]*) \(.*/\1/' -e 's/^(.*\[rapid\] [^(]*)\(.*/\1/' -e 's/^([IWEF][0-9]{4} [0-9:.]+) +[0-9]+ /\1 /' "$3.raw" >"$3"
	rm "$3.raw"
	return "$verdict"
}

# world SEED [FILE]: plays a world, twice if it is among the first, and keeps its output if it fails.
world() {
	local file=${2-} how=SEED=$1 name=seed-$1
	if [[ -n $file ]]; then how=FILE=$file name=$(basename "$file" .yaml); fi
	local out=$work/$name.log verdict=
	if ! play "$1" "$file" "$out"; then
		verdict=broken
	elif [[ -z $file ]] && (($1 < first + twice)) && { play "$1" "$file" "$out.again" || true; ! diff "$out" "$out.again" >"$out.diff"; }; then
		echo "$how does not repeat itself:" | cat - "$out.diff" "$out" >"$out.both"
		mv "$out.both" "$out"
		verdict=differs
	fi
	if ((count + ${#schedules[@]} == 1)) || [[ -n $verdict ]]; then cat "$out"; fi
	if [[ -n $verdict ]]; then
		mkdir -p "$failed"
		cp "$out" "$failed/"
		echo "failed: make sim $how ($verdict)" >"$work/$name.verdict"
	fi
	rm -f "$out"*
}

# start SEED [FILE]: plays a world beside the others, one for each core.
start() {
	while mapfile -t running < <(jobs -pr) && ((${#running[@]} >= cores)); do wait -n || true; done
	world "$@" &
	((++played))
}

((count == 0)) || echo "seeds $first to $((first + count - 1))"
played=0
# Each world runs in its own process group, which does not ignore Ctrl-C.
set -m
cores=$(getconf _NPROCESSORS_ONLN)
for file in ${schedules[@]+"${schedules[@]}"}; do start "$(sed -n 's/^seed: //p' "$file")" "$file"; done
for ((seed = first; seed < first + count; seed++)); do
	[[ -z ${MINUTES-} ]] || ((SECONDS < MINUTES * 60)) || break
	start "$seed"
done
wait
((count == 1)) || echo "$played worlds, $(((SECONDS * 1000 + played / 2) / (played > 0 ? played : 1))) ms each, the first $((twice < played ? twice : played)) seeds twice" >&2
verdicts=("$work"/*.verdict)
[[ -e ${verdicts[0]} ]] || exit 0
cat "${verdicts[@]}"
exit 1
