# SPDX-License-Identifier: Apache-2.0

# Runs targets of the Makefile side by side, which says of itself that its targets follow one another. What each prints
# comes in one piece, once it has ended.
#
# usage: make -f test/tools/beside.mk --jobs=2 --output-sync=recurse TARGET...

SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c

%:
	@$(MAKE) --no-print-directory --file=Makefile $@

# Else make would look for a rule that makes this file.
$(firstword $(MAKEFILE_LIST)): ;
