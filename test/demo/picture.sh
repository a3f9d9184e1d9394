#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0

# Prints the third step of the demo from the demo's output. With the file of a picture, it fails unless the picture shows this step.

set -euo pipefail
step=$(sed -nE '/^(\x1b\[1m)?3\. /,/^(\x1b\[1m)?4\. /{ /^(\x1b\[1m)?4\. /!p; }')
(($# > 0)) || { echo "$step"; exit; }
# Each element "text" of the picture is a line.
shown=$(sed 's/<text/\n<text/g' "$1" | sed -nE '/^<text/{ s/<[^>]*>//g; s/&quot;/"/g; s/&lt;/</g; s/&gt;/>/g; s/&amp;/\&/g; p; }')
diff <(echo "$shown") <(sed 's/\x1b\[[0-9;]*m//g' <<<"$step") || {
	echo "$1 shows the lines with <, and the demo prints those with >; hack/update-docs.sh demo draws it again"
	exit 1
}
