# SPDX-License-Identifier: Apache-2.0

# Prints, out of what go test -v has printed, why tests failed: the last message of each, shortened. What tests show
# afterwards, such as the logs of programs, is left out.

/^=== (RUN|NAME|CONT) / { test = $3; open = 0; next }
/^=== / { open = 0; next }

/^ *--- FAIL: / {
	if (!seen[$3]++) failed[++count] = $3
	open = 0
	next
}

/^ *--- / || /^(ok|FAIL|PASS)/ { open = 0; next }

# A message starts like this, and its other lines are indented further.
/^ +[A-Za-z0-9_]+\.go:[0-9]+: / {
	open = !/(\.log|log of [^:]*|: kubectl .*):$/
	if (open) {
		last[test] = substr($0, 1, 300)
		lines = 1
	}
	next
}

open && /^        / && lines++ < 20 { last[test] = last[test] "\n" substr($0, 1, 300) }

END {
	for (i = 1; i <= count; i++) {
		# What has failed only because of its subtests has nothing to say, and the first few tell what is wrong with many.
		if (failed[i] in last && told++ < 5) print "why " failed[i] " failed:\n" last[failed[i]]
	}
	if (told > 5) print "and " told - 5 " more"
}
