// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"cmp"
	"regexp"
	"strings"

	utilversion "k8s.io/apimachinery/pkg/util/version"
)

// versionOf returns the version of an image: its tag or, if that tells none, a label's.
func versionOf(image, label string) string {
	image, _, _ = strings.Cut(image, "@")
	_, tag, _ := strings.Cut(image[strings.LastIndex(image, "/")+1:], ":")
	for _, candidate := range []string{tag, label} {
		if _, err := utilversion.ParseSemantic(candidate); err == nil {
			return candidate
		}
	}
	return cmp.Or(tag, label)
}

// released returns the release that a build is, or is based on. Builds by Go's own versions, such as (devel) and pseudo-versions,
// have none.
func released(build string) *utilversion.Version {
	// A tag, perhaps with what git describe adds: the commits since then, the commit, and that there are changes.
	described := regexp.MustCompile(`^v?(\d+\.\d+\.\d+(?:-(?:alpha|beta|rc)[.\d]*)?)(?:-\d+-g[0-9a-f]+)?(?:-dirty)?$`)
	match := described.FindStringSubmatch(build)
	if match == nil {
		return nil
	}
	v, err := utilversion.ParseSemantic(match[1])
	if err != nil {
		return nil
	}
	return v
}

// compare notes a plugin that is older or newer than the server. It says nothing about builds without a release.
func (s *Settings) compare(plugin string) {
	ours, theirs := released(plugin), released(s.Version)
	if ours == nil || theirs == nil {
		return
	}
	than := ""
	switch {
	case ours.LessThan(theirs):
		than = "older"
	case theirs.LessThan(ours):
		than = "newer"
	default:
		return
	}
	s.note("This plugin (%s) is %s than the server (%s), so the server may act differently: use the plugin of the server's release.",
		plugin, than, s.Version)
}
