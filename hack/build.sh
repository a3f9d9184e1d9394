#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0

# Builds Heirloom's programs, always with the same flags. VERSION is the version that they report (default: from git describe).
#
# usage: hack/build.sh DIRECTORY [PACKAGE...]     (default: ./cmd/heirloom ./cmd/kubectl-heirloom)
#        hack/build.sh --help

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [[ ${1---help} == --help ]]; then
	sed -n '4,/^$/s/^# \{0,1\}//p' "hack/${0##*/}"
	exit
fi

directory=$1
shift
(($# > 0)) || set -- ./cmd/heirloom ./cmd/kubectl-heirloom
version=${VERSION:-$(git describe --tags --always --dirty 2>/dev/null || echo unknown)}
# Without the tracing pages of gRPC, which a library brings and nothing serves, the linker can leave out methods that are never called: a
# quarter of the program, and of the memory that its code takes. Programs that are linked without debugging information are also compiled
# without it, which is quicker.
CGO_ENABLED=0 go build -tags grpcnotrace -trimpath -gcflags all=-dwarf=false \
	-ldflags "-s -w -X github.com/heirloom-dev/heirloom/pkg/version.version=$version" -o "$directory/" "$@"
