// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// The keys and domains that rules treat specially (docs/design.md §1).
//
//nolint:gochecknoglobals // tables that nothing changes
var (
	// NeverKeys are never inherited: they are bookkeeping of Cluster API's own controllers, and of tools.
	NeverKeys = []string{
		"cluster.x-k8s.io/conversion-data",
		clusterv1.RevisionAnnotation, "machinedeployment.clusters.x-k8s.io/revision-history",
		clusterv1.DesiredReplicasAnnotation, clusterv1.MaxReplicasAnnotation,
		clusterv1.ClusterTopologyHoldUpgradeSequenceAnnotation, clusterv1.ClusterTopologyDeferUpgradeAnnotation,
		"app.kubernetes.io/managed-by", "helm.sh/chart",
	}
	// NeverDomains are never inherited, with all of their keys. By those of GitOps tools, a tool recognizes the objects that it keeps as they
	// are in Git: it would mistake the child for one of its own.
	NeverDomains  = []string{"kubectl.kubernetes.io", "argocd.argoproj.io", "kustomize.toolkit.fluxcd.io", "helm.toolkit.fluxcd.io", "meta.helm.sh"}
	gitOpsDomains = NeverDomains[1:4]
	// BookkeepingDomains have keys that describe the object that carries them; of the families, subdomains count too. Such a key is
	// inherited only from a template or a topology, where the owner put it on purpose. An operator's regex for Nodes does not select it.
	BookkeepingDomains  = []string{"cluster.x-k8s.io", "topology.cluster.x-k8s.io"}
	BookkeepingFamilies = []string{"heirloom.dev"}
	// FamilyLabels are those by which Cluster API's controllers find an object's family. The controllers set them themselves, despite
	// any template and even if no selector names them.
	FamilyLabels = []string{
		clusterv1.ClusterNameLabel, clusterv1.MachineSetNameLabel, clusterv1.MachineDeploymentNameLabel,
		clusterv1.MachineControlPlaneLabel, clusterv1.MachineControlPlaneNameLabel, clusterv1.MachinePoolNameLabel,
	}
	// TopologyLabels are those by which Cluster API's topology controller finds its objects.
	TopologyLabels = []string{
		clusterv1.ClusterTopologyOwnedLabel, clusterv1.ClusterTopologyMachineDeploymentNameLabel,
		clusterv1.ClusterTopologyMachinePoolNameLabel,
	}
)

// TrackedBy returns a label or an annotation by which a GitOps tool recognizes the object as one of its own, or "".
func TrackedBy(object metav1.Object) string {
	for _, keys := range []map[string]string{object.GetLabels(), object.GetAnnotations()} {
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			if slices.Contains(gitOpsDomains, domain(key)) {
				return key
			}
		}
	}
	return ""
}

func never(key string) bool {
	return slices.Contains(NeverKeys, key) || slices.Contains(NeverDomains, domain(key))
}

func bookkeeping(key string) bool {
	d := domain(key)
	return slices.Contains(BookkeepingDomains, d) ||
		slices.ContainsFunc(BookkeepingFamilies, func(parent string) bool { return within(d, parent) })
}

// domain returns the prefix of a label or annotation key, or the key itself where it has none.
// Cluster API reads keys in the same way.
func domain(key string) string {
	prefix, _, _ := strings.Cut(key, "/")
	return prefix
}

// within reports whether a domain is parent or a subdomain of it.
func within(domain, parent string) bool {
	return domain == parent || strings.HasSuffix(domain, "."+parent)
}
