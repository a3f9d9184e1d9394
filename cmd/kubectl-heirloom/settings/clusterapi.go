// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	cliflag "k8s.io/component-base/cli/flag"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// featureGate is off by default up to release newestKnown, in which AllAlpha turns it on.
const featureGate, newestKnown = "MachineTaintPropagation", "1.14"

// readClusterAPI finds Cluster API's version, and whether it propagates taints. The server's own setting takes precedence.
func (s *Settings) readClusterAPI(ctx context.Context, reader client.Reader) error {
	found, err := CoreManagers(ctx, reader)
	if err != nil && !apierrors.IsForbidden(err) {
		return fmt.Errorf("looking for Cluster API's Deployment: %w", err)
	}
	if len(found) > 0 {
		s.ClusterAPI = versionOf(ManagerOf(&found[0]).Image, "")
	}
	s.Propagation = s.Config.Rules.ClusterAPITaints
	switch {
	case s.Propagation != inherit.PropagationUnknown:
		return nil
	case err != nil:
		s.notePropagation("you may not list its Deployments")
		return nil
	case len(found) == 0:
		s.notePropagation("its Deployment was not found")
		return nil
	}
	s.Propagation = PropagationOf(&found[0])
	differs := slices.IndexFunc(found, func(d appsv1.Deployment) bool { return PropagationOf(&d) != s.Propagation })
	if differs > 0 {
		s.Propagation = inherit.PropagationUnknown
		s.notePropagation(fmt.Sprintf("its Deployments %s and %s have different settings", client.ObjectKeyFromObject(&found[0]), client.ObjectKeyFromObject(&found[differs])))
	} else if s.Propagation == inherit.PropagationUnknown {
		s.notePropagation(fmt.Sprintf("it has version %s, but this plugin knows only versions up to %s", s.ClusterAPI, newestKnown))
	}
	return nil
}

func (s *Settings) notePropagation(why string) {
	s.note(`Cluster API's feature gate MachineTaintPropagation is unknown, because %s (use --server-flags=--cluster-api-taint-propagation=enabled or …=disabled).`, why)
}

// CoreManagers returns the Deployments of Cluster API's core manager or, if you may not list all namespaces, of the usual namespace.
func CoreManagers(ctx context.Context, reader client.Reader) ([]appsv1.Deployment, error) {
	return deployments(ctx, reader, "", "capi-system", client.MatchingLabels{clusterv1.ProviderNameLabel: "cluster-api"})
}

// PropagationOf reads the feature gate of a core manager.
func PropagationOf(d *appsv1.Deployment) inherit.TaintPropagation {
	manager, gates := ManagerOf(d), map[string]bool{}
	fs := pflag.NewFlagSet("cluster-api", pflag.ContinueOnError)
	fs.ParseErrorsAllowlist.UnknownFlags = true
	fs.Usage = func() {}
	fs.Var(cliflag.NewMapStringBool(&gates), "feature-gates", "")
	if err := fs.Parse(append(manager.Command, manager.Args...)); err != nil {
		return inherit.PropagationUnknown
	}
	on, set := gates[featureGate]
	switch {
	case on, !set && gates["AllAlpha"]:
		return inherit.PropagationEnabled
	case !set && newerThanKnown(versionOf(manager.Image, "")):
		return inherit.PropagationUnknown
	default:
		return inherit.PropagationDisabled
	}
}

// newerThanKnown reports whether a release may have defaults that the plugin does not know.
func newerThanKnown(clusterAPI string) bool {
	v, err := utilversion.ParseSemantic(clusterAPI)
	known := utilversion.MustParseGeneric(newestKnown)
	return err == nil && known.LessThan(utilversion.MajorMinor(v.Major(), v.Minor()))
}
