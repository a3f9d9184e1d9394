#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0

# What the steps of the demo have in common: output, checks, and the entries of objects.

set -euo pipefail -f # without -f, a word of a text could match files
export LC_ALL=C      # sort and comm have to agree

bold='' green='' yellow='' red='' reset=''
if [[ -n ${CLICOLOR_FORCE-} || (-t 1 && -z ${NO_COLOR-}) ]]; then
	bold=$'\e[1m' green=$'\e[32m' yellow=$'\e[33m' red=$'\e[31m' reset=$'\e[0m'
fi

passed=0 failed=0 steps=0
end() {
	local status=$?
	[[ -z ${watch-} ]] || kill "$watch" 2>/dev/null || true
	((status == 0)) || check "This step could be finished" echo "see above"
	printf '\n%d checks passed, %d failed (%d s)\n' "$passed" "$failed" "$SECONDS"
	((failed == 0))
}
trap end EXIT
trap 'exit 1' INT TERM

# wrap TEXT FIRST OTHERS: breaks lines between words, after at most 82 columns; README's picture has 84.
wrap() {
	local line='' word
	local indent=$2
	for word in $1; do
		if [[ -n $line ]] && ((${#indent} + ${#line} + ${#word} >= 82)); then
			printf '%s%s\n' "$indent" "$line"
			indent=$3 line=''
		fi
		line+="${line:+ }$word"
	done
	printf '%s%s\n' "$indent" "$line"
}

# paint STYLE: prints each line of its input in this style.
paint() { sed "s/.*/$1&$reset/"; }

headline() {
	local heading=$((++steps)).\ $1 line
	printf -v line '%*s' "${#heading}" ''
	printf '\n%s\n%s\n' "$bold$heading$reset" "${line// /─}"
}

say() {
	echo
	wrap "$1" '' ''
}

# output FILE...: what a program has printed.
output() {
	local line
	while read -r line; do
		case $line in
		'') ;;
		Warning:*) wrap "$line" '  | ' '  |   ' | paint "$yellow" ;;
		*) wrap "$line" '  | ' '  |   ' ;;
		esac
	done < <(cat "$@")
}

show() {
	echo
	wrap "$*" '  $ ' '      ' | sed '$!s/$/ \\/' | paint "$bold"
}

# run COMMAND...: shows the command as you would type it, runs it and shows its output.
run() {
	local status=0
	show "$@"
	"$@" >out 2>err || status=$?
	output out err
	return "$status"
}

# check WHAT COMMAND...: the expectation holds if the command succeeds and prints nothing; else it prints the problems.
check() {
	local problems line status=0
	problems=$("${@:2}" 2>&1) || status=$?
	if [[ $status == 0 && -z $problems ]]; then
		passed=$((passed + 1))
		printf '%s' "$green  ✓$reset"
		wrap "$1" ' ' '    '
		return
	fi
	failed=$((failed + 1))
	printf '%s' "$red  ✗$reset"
	wrap "$1" ' ' '    '
	while read -r line; do wrap "$line" '      ' '      '; done <<<"${problems:-exit status $status}"
}

# eventually COMMAND...: the command, again and again for half a minute, until it succeeds and prints nothing.
eventually() {
	local problems end=$((SECONDS + 30))
	until problems=$("$@" 2>&1) && [[ -z $problems ]]; do
		((SECONDS < end)) || { echo "${problems:-failed}"; return 1; }
		sleep 0.1
	done
}

# ask REQUEST: has test/demo do what kubectl cannot.
ask() {
	local answer
	echo "$*" >&3
	read -r -u 4 answer
	[[ $answer == "done" ]] || { echo "$answer"; return 1; }
}

# kubelet NAME: starts a kubelet, and waits for its Node.
kubelet() {
	show kubemark --morph=kubelet "--name=$1" "--kubeconfig=$1.kubeconfig"
	ask kubelet "$1"
}

entries=(-o "go-template-file=$here/entries.tmpl" --show-managed-fields)

# part PATTERN [FILE...]: the entries of a part of an object, see entries.tmpl.
part() { awk -v part="^= $1\$" '/^= /{ in_it = $0 ~ part; next } in_it' "${@:2}" | sort -u; }

# of KIND NAME [PART]: the entries of a stored object.
of() { kubectl get "$1" "$2" "${entries[@]}" | part "$2 [0-9]+ ${3:-itself}"; }

# Problems of a list of entries, each in a file, compared with the entries in the standard input.
missing() { comm -23 "$1" - | sed 's/^/missing: /'; }
unwanted() { comm -12 "$1" - | sed 's/^/still there: /'; }

# has FILE KIND NAME [PART] and lacks ...: the same for a stored object.
has() { of "${@:2}" | missing "$1"; }
lacks() { of "${@:2}" | unwanted "$1"; }

# table FILE: entries as a table.
table() {
	local type entry
	for type in label annotation taint; do
		while IFS= read -r entry; do printf '    %-12s%s\n' "$type" "$entry"; done < <(sed -n "s/^$type //p" "$1")
	done
}

# fields: entries as metadata.managedFields has them.
fields() {
	sed -E 's/^(label|annotation) ([^=]*)=.*/\1 f:\2/; s/^taint ([^=:]*)(=[^:]*)?:([^ ]*).*/taint k:{"effect":"\3","key":"\1"}/' "$@" | sort
}

# create MANIFEST KIND OWNER: creates the objects of a manifest, with this owner. The file sent has their entries, got those of the answers.
create() {
	local uid
	uid=$(kubectl get "$2" "$3" -o 'jsonpath={.metadata.uid}')
	sed -i.orig "s/OWNER/$uid/" "$1"
	kubectl create --dry-run=client -f "$1" "${entries[@]}" >sent
	show kubectl create -f "$1"
	kubectl create -f "$1" "${entries[@]}" >got
}

# answer PART FILE: what is missing in a part of the answers, and added PART: what was not sent.
answer() { part "$1" got | missing "$2"; }
added() { comm -13 <(part "$1" sent) <(part "$1" got); }

# versions NAME [FROM]: the resourceVersions of a Node's stored versions, oldest first, up to now.
versions() {
	local now
	now=$(kubectl get node "$1" -o 'jsonpath={.metadata.resourceVersion}')
	eventually grep -q "^= $1 $now itself$" watched
	awk -v name="$1" -v from="${2-0}" '$1 == "=" && $2 == name && $4 == "itself" && $3 >= from { print $3 }' watched
}

