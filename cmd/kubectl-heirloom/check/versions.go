// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"
)

const (
	// oldestKubernetes is where match conditions of webhooks are stable, oldestClusterAPI the oldest release that is tested.
	oldestKubernetes = "v1.30.0"
	oldestClusterAPI = "v1.11.0"
)

func versions(_ context.Context, w *world) Result {
	var broken, doubtful, unread []string
	describe := fmt.Sprintf("Plugin %s", w.Plugin)
	known, err := w.settings()
	if err != nil {
		unread = append(unread, fmt.Sprintf("the server's settings: %v", err))
	}
	if known.Version == "" {
		unread = append(unread, "the server's version")
	} else {
		describe += ", server " + known.Version
		if !sameMinor(w.Plugin, known.Version) {
			doubtful = append(doubtful, fmt.Sprintf("the plugin is %s and the server %s: the plugin may explain other rules than the server follows",
				w.Plugin, known.Version))
		}
	}
	if known.ClusterAPI == "" {
		unread = append(unread, "Cluster API's version")
	} else {
		describe += ", Cluster API " + known.ClusterAPI
		if older(known.ClusterAPI, oldestClusterAPI) {
			broken = append(broken, fmt.Sprintf("Cluster API is %s, and Heirloom needs %s or later", known.ClusterAPI, oldestClusterAPI))
		}
	}
	if info, err := w.Kubernetes(); err != nil {
		unread = append(unread, fmt.Sprintf("Kubernetes' version: %v", err))
	} else {
		describe += ", Kubernetes " + info.GitVersion
		if older(info.GitVersion, oldestKubernetes) {
			broken = append(broken, fmt.Sprintf("Kubernetes is %s, and Heirloom needs %s or later", info.GitVersion, oldestKubernetes))
		}
	}
	for i, one := range unread {
		unread[i] = "not known: " + one
	}
	switch {
	case len(broken) > 0:
		return failed("%s do not go together.", describe).with(broken...).with(doubtful...).with(unread...).next("See docs/support.md.")
	case len(doubtful) > 0:
		return warning("%s differ.", describe).with(doubtful...).with(unread...).next("Use the plugin of the server's version.")
	case len(unread) > 0:
		return unknown("%s.", describe).with(unread...).next("Ask for the right to get Deployments in Heirloom's and Cluster API's namespaces.")
	}
	return ok("%s.", describe)
}

// sameMinor reports whether two versions differ in no more than their patch, as far as that is known: a build of no release has no
// number.
func sameMinor(a, b string) bool {
	first, err := version.ParseSemantic(a)
	second, otherErr := version.ParseSemantic(b)
	if err != nil || otherErr != nil {
		return true
	}
	return first.Major() == second.Major() && first.Minor() == second.Minor()
}

// older reports whether a version is known to be older than another. Pre-releases count as the release.
func older(is, than string) bool {
	parsed, err := version.ParseGeneric(is)
	return err == nil && parsed.LessThan(version.MustParseGeneric(than))
}
