// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// NeverInherited returns what no rule propagates (docs/design.md §1, "Never inherited"): single keys, and domains with all of their
// keys. These are bookkeeping of kubectl and of Cluster API's own controllers, and tracking keys of GitOps tools, which would
// mistake the child for an object of their own.
func NeverInherited() (keys, domains []string) {
	return neverKeys(), slices.Insert(toolDomains(), 1, gitOps()...)
}

func neverKeys() []string {
	return []string{
		"cluster.x-k8s.io/conversion-data",
		clusterv1.RevisionAnnotation, "machinedeployment.clusters.x-k8s.io/revision-history",
		clusterv1.DesiredReplicasAnnotation, clusterv1.MaxReplicasAnnotation,
		clusterv1.ClusterTopologyHoldUpgradeSequenceAnnotation, clusterv1.ClusterTopologyDeferUpgradeAnnotation,
		"app.kubernetes.io/managed-by", "helm.sh/chart",
	}
}

func toolDomains() []string {
	return []string{"kubectl.kubernetes.io", "meta.helm.sh"}
}

// gitOps are the domains by whose keys GitOps tools recognize the objects that they keep as they are in Git.
func gitOps() []string {
	return []string{"argocd.argoproj.io", "kustomize.toolkit.fluxcd.io", "helm.toolkit.fluxcd.io"}
}

// TrackedBy returns a label or an annotation by which a GitOps tool recognizes the object as one of its own, or "".
func TrackedBy(object metav1.Object) string {
	for _, keys := range []map[string]string{object.GetLabels(), object.GetAnnotations()} {
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			if slices.Contains(gitOps(), domain(key)) {
				return key
			}
		}
	}
	return ""
}

// never reports whether no rule propagates a key.
func never(key string) bool {
	d := domain(key)
	return slices.Contains(neverKeys(), key) || slices.Contains(toolDomains(), d) || slices.Contains(gitOps(), d)
}

// Bookkeeping returns the domains whose keys describe the object that carries them, and families: domains whose subdomains count,
// too. Such a key is inherited only from a template or a topology, where the owner put it on purpose. An operator's regex for Nodes
// does not select it.
func Bookkeeping() (domains, families []string) {
	return []string{"cluster.x-k8s.io", "topology.cluster.x-k8s.io"}, []string{"heirloom.dev"}
}

// bookkeeping reports whether a key describes the object that carries it.
func bookkeeping(key string) bool {
	d := domain(key)
	domains, families := Bookkeeping()
	return slices.Contains(domains, d) || slices.ContainsFunc(families, func(parent string) bool { return within(d, parent) })
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

// inheritable returns the entries of declared that may be inherited.
func inheritable(declared map[string]string) map[string]string {
	return filter(declared, func(key string) bool { return droppedKey(key) == "" })
}

// withoutSelected returns labels without the keys that one of the selectors uses or that identify an object. The controller that owns
// a selector sets its labels. To change one would make a MachineSet lose or adopt Machines.
func withoutSelected(labels map[string]string, selectors ...metav1.LabelSelector) map[string]string {
	selected := selectedBy(selectors...)
	return filter(labels, func(key string) bool { return droppedSelected(key, selected) == "" })
}

// inheritableLabels returns the labels of a template that may be inherited where these selectors are in use.
func inheritableLabels(labels map[string]string, selectors ...metav1.LabelSelector) map[string]string {
	selected := selectedBy(selectors...)
	return filter(labels, func(key string) bool { return droppedLabel(key, selected) == "" })
}

func filter(m map[string]string, keep func(key string) bool) map[string]string {
	kept := make(map[string]string, len(m))
	for key, value := range m {
		if keep(key) {
			kept[key] = value
		}
	}
	return kept
}

// FamilyLabels returns the labels by which Cluster API's controllers find an object's family. The controllers set these labels
// themselves, despite any template and even if no selector names them.
func FamilyLabels() []string {
	return []string{
		clusterv1.ClusterNameLabel, clusterv1.MachineSetNameLabel, clusterv1.MachineDeploymentNameLabel,
		clusterv1.MachineControlPlaneLabel, clusterv1.MachineControlPlaneNameLabel, clusterv1.MachinePoolNameLabel,
	}
}

// identifies reports whether Cluster API's controllers find an object's family by this label.
func identifies(key string) bool {
	return slices.Contains(FamilyLabels(), key)
}
