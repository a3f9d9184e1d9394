// SPDX-License-Identifier: Apache-2.0

// Package settings finds out how the server is configured. Every answer of the plugin depends on that: on the regexes, the watch
// filter, the management cluster, the provider groups, and on Cluster API's feature gate.
package settings

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/heirloom-dev/heirloom/pkg/config"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// Settings are the server's configuration, as far as it is known.
type Settings struct {
	// Config is what the server's flags mean. What is not known has the flag's default.
	Config *config.Config
	// Known says that Config is the server's own or was given by the user. Otherwise it has the defaults.
	Known bool
	// Origin says where Config comes from, such as "Deployment heirloom-system/heirloom" or "--values prod.yaml".
	Origin string
	// Deployment is the server's, and Others are those of other Heirlooms in this cluster. Both are empty if none was found.
	Deployment types.NamespacedName
	Others     []types.NamespacedName
	// Version is the server's, ClusterAPI that of Cluster API's core manager. Each is empty if it is not known.
	Version, ClusterAPI string
	// Propagation says whether Cluster API propagates taints itself.
	Propagation inherit.TaintPropagation
	// Notes are sentences about what is not known, and about a plugin that is older or newer than the server.
	Notes []string
}

// Policy returns the options of the rules.
func (s Settings) Policy() inherit.Policy {
	policy := s.Config.Rules
	policy.ClusterAPITaints = s.Propagation
	return policy
}

// LeavesOut says why the server never touches what is in a namespace, if it does not.
func (s Settings) LeavesOut(namespace string) (inherit.Reason, bool) {
	if only := s.Config.Namespace; only != "" && namespace != only {
		return inherit.Reason("the server only watches namespace " + only), true
	}
	return "", false
}

// LeavesOutGroup says why the server never touches InfraMachines and BootstrapConfigs of an API group, if it does not.
func (s Settings) LeavesOutGroup(group string) (inherit.Reason, bool) {
	if !slices.Contains(s.Config.ProviderGroups, group) {
		return inherit.Reason("its API group is not among the server's --additional-provider-groups"), true
	}
	return "", false
}

func (s *Settings) note(format string, args ...any) {
	s.Notes = append(s.Notes, fmt.Sprintf(format, args...))
}
