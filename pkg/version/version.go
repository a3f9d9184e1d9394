// SPDX-License-Identifier: Apache-2.0

// Package version identifies the build.
package version

import "runtime/debug"

// version is set at build time: -ldflags "-X github.com/heirloom-dev/heirloom/pkg/version.version=v1.2.3".
var version string // a package variable, because the linker can set nothing else

// String returns the version of this build, or the version of the module if it was built without a version.
func String() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
