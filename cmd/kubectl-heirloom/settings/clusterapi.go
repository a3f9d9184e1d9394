// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	cliflag "k8s.io/component-base/cli/flag"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

const (
	// coreProvider is the value of Cluster API's provider label on its core manager.
	coreProvider = "cluster-api"
	// usualCore is the namespace in which clusterctl installs it.
	usualCore = "capi-system"
	// featureGate is off by default up to newestKnown, and allAlpha switches it on there.
	featureGate = "MachineTaintPropagation"
	allAlpha    = "AllAlpha"
	newestKnown = "1.14"
)

// sayPropagation ends notes about Cluster API's feature gate.
const sayPropagation = `give --server-flags="--cluster-api-taint-propagation=enabled" or "…=disabled".`

// readClusterAPI finds out Cluster API's version, and whether it propagates taints. What the server was told counts more.
func (s *Settings) readClusterAPI(ctx context.Context, reader client.Reader) error {
	s.Propagation = s.Config.Rules.ClusterAPITaints
	known := s.Propagation != inherit.PropagationUnknown
	found, err := CoreManagers(ctx, reader)
	switch {
	case apierrors.IsForbidden(err):
		if !known {
			s.note("Whether Cluster API propagates taints itself is unknown, because you may not list its Deployments: " + sayPropagation)
		}
		return nil
	case err != nil:
		return fmt.Errorf("looking for Cluster API's Deployment: %w", err)
	case len(found) == 0:
		if !known {
			s.note("Whether Cluster API propagates taints itself is unknown, because its Deployment was not found: " + sayPropagation)
		}
		return nil
	}
	s.ClusterAPI = versionOf(ManagerOf(&found[0]).Image, "")
	if known {
		return nil
	}
	s.Propagation = PropagationOf(&found[0])
	for i := range found {
		if PropagationOf(&found[i]) != s.Propagation {
			s.Propagation = inherit.PropagationUnknown
			s.note("Whether Cluster API propagates taints itself is unknown, because its Deployments %s and %s differ in that: %s",
				client.ObjectKeyFromObject(&found[0]), client.ObjectKeyFromObject(&found[i]), sayPropagation)
			return nil
		}
	}
	if s.Propagation == inherit.PropagationUnknown {
		s.note("Whether Cluster API %s propagates taints itself is unknown, because this plugin knows it only up to %s: %s",
			s.ClusterAPI, newestKnown, sayPropagation)
	}
	return nil
}

// CoreManagers returns the Deployments of Cluster API's core manager or, if you may list only those of the usual namespace, of that one.
func CoreManagers(ctx context.Context, reader client.Reader) ([]appsv1.Deployment, error) {
	return deployments(ctx, reader, "", usualCore, client.MatchingLabels{clusterv1.ProviderNameLabel: coreProvider})
}

// PropagationOf reads the feature gate of a core manager.
func PropagationOf(d *appsv1.Deployment) inherit.TaintPropagation {
	manager := ManagerOf(d)
	gates := map[string]bool{}
	fs := pflag.NewFlagSet("cluster-api", pflag.ContinueOnError)
	fs.ParseErrorsAllowlist.UnknownFlags = true
	fs.Usage = func() {}
	fs.Var(cliflag.NewMapStringBool(&gates), "feature-gates", "")
	if err := fs.Parse(append(manager.Command, manager.Args...)); err != nil {
		return inherit.PropagationUnknown
	}
	on, set := gates[featureGate]
	if !set && gates[allAlpha] {
		on, set = true, true
	}
	switch {
	case on:
		return inherit.PropagationEnabled
	case !set && newerThanKnown(versionOf(manager.Image, "")):
		return inherit.PropagationUnknown
	default:
		return inherit.PropagationDisabled
	}
}

// newerThanKnown reports whether a release may have other defaults than those that the plugin knows.
func newerThanKnown(clusterAPI string) bool {
	v, err := utilversion.ParseSemantic(clusterAPI)
	known := utilversion.MustParseGeneric(newestKnown)
	return err == nil && (v.Major() > known.Major() || v.Major() == known.Major() && v.Minor() > known.Minor())
}
