// SPDX-License-Identifier: Apache-2.0

package release

import (
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// kinds returns the kinds whose objects Heirloom may have written, owners before what they own.
func (s *session) kinds() ([]schema.GroupVersionKind, error) {
	lists, err := discovery.ServerPreferredResources(s.Discovery)
	var failed *discovery.ErrGroupDiscoveryFailed
	if err != nil && (!errors.As(err, &failed) || s.needs(failed)) {
		return nil, fmt.Errorf("discovering the API server's kinds: %w", err)
	}
	return s.chosen(lists), nil
}

// needs reports whether a group of ours is among those that could not be discovered. Others, such as those of an aggregated
// API server that is down, are nothing to us.
func (s *session) needs(failed *discovery.ErrGroupDiscoveryFailed) bool {
	for gv := range failed.Groups {
		if _, ours := s.rank(gv.Group); ours {
			return true
		}
	}
	return false
}

// rank returns where a group stands in the order of owners, and whether it is one of ours.
func (s *session) rank(group string) (int, bool) {
	groups := slices.Concat([]string{capi.ControlPlaneGroup, clusterv1.GroupVersion.Group}, s.ProviderGroups)
	i := slices.Index(groups, group)
	return i, i >= 0
}

// chosen returns those kinds of a discovery that can inherit.
func (s *session) chosen(lists []*metav1.APIResourceList) []schema.GroupVersionKind {
	var kinds []schema.GroupVersionKind
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if _, ours := s.rank(gv.Group); err != nil || !ours {
			continue
		}
		for _, resource := range list.APIResources {
			if slices.Contains(resource.Verbs, "list") && slices.Contains(resource.Verbs, "patch") && inherits(gv.Group, resource.Kind) {
				kinds = append(kinds, gv.WithKind(resource.Kind))
			}
		}
	}
	slices.SortStableFunc(kinds, func(a, b schema.GroupVersionKind) int {
		first, _ := s.rank(a.Group)
		second, _ := s.rank(b.Group)
		return first - second
	})
	return kinds
}

// inherits reports whether there is a rule by which objects of a kind inherit.
func inherits(group, kind string) bool {
	if group == clusterv1.GroupVersion.Group {
		return slices.Contains([]string{"MachineDeployment", "MachinePool", "MachineSet", "Machine"}, kind)
	}
	return !inherit.IsTemplate(kind)
}
