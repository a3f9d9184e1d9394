# SPDX-License-Identifier: Apache-2.0

# Sums up what a run of tests waited for: one line for each thing, the longest first, and how many API servers there were.
# Each line of its input is a number of seconds, a tab, and what was waited for (test/controlplane/waits.go).

BEGIN { FS = "\t" }
{
	count[$2]++
	total[$2] += $1
	if ($1 > longest[$2]) longest[$2] = $1
}
END {
	printf "API servers started: %d\n", count["an API server to start"]
	if (NR == 0) exit
	print "what tests waited for, side by side (seconds in all, times, longest):"
	for (what in count) printf "%8.0f %6d %6.0f  %s\n", total[what], count[what], longest[what], what | "sort -rn"
}
