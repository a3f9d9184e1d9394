// SPDX-License-Identifier: Apache-2.0

package release

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// kinds returns the kinds whose objects Heirloom may have written, owners before what they own. It ignores other groups that
// cannot be discovered, such as those of an aggregated API server that is down.
func (s *session) kinds() ([]schema.GroupVersionKind, error) {
	lists, err := discovery.ServerPreferredResources(s.Discovery)
	var failed *discovery.ErrGroupDiscoveryFailed
	ours := func(gv schema.GroupVersion) bool { return slices.Contains(s.groups(), gv.Group) }
	if errors.As(err, &failed) && !slices.ContainsFunc(slices.Collect(maps.Keys(failed.Groups)), ours) {
		err = nil
	}
	if err != nil {
		return nil, fmt.Errorf("discovering the API server's kinds: %w", err)
	}
	return s.chosen(lists), nil
}

// groups returns the API groups of what inherits, those of owners first.
func (s *session) groups() []string {
	return slices.Concat([]string{inherit.ControlPlaneGroup, clusterv1.GroupVersion.Group}, s.ProviderGroups)
}

// chosen returns those kinds of a discovery that can inherit. What has no namespace cannot, such as a provider's identities: with
// --namespace, Heirloom may not even list it.
func (s *session) chosen(lists []*metav1.APIResourceList) []schema.GroupVersionKind {
	lists = discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "patch"}}, lists)
	var kinds []schema.GroupVersionKind
	for _, group := range s.groups() {
		for _, list := range lists {
			gv, err := schema.ParseGroupVersion(list.GroupVersion)
			if err != nil || gv.Group != group {
				continue
			}
			for _, resource := range list.APIResources {
				if resource.Namespaced && inherits(group, resource.Kind) {
					kinds = append(kinds, gv.WithKind(resource.Kind))
				}
			}
		}
	}
	return kinds
}

// inherits reports whether there is a rule by which objects of a kind inherit.
func inherits(group, kind string) bool {
	if group == clusterv1.GroupVersion.Group {
		return slices.Contains([]string{"MachineDeployment", "MachinePool", "MachineSet", "Machine"}, kind)
	}
	return !inherit.IsTemplate(kind)
}
