// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/snapshot"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/managedfields"
)

// others finds what may undo or fight what Heirloom does.
func others(_ context.Context, w *world) Result {
	var findings, unread []string
	found, err := w.installation()
	if err == nil {
		findings = overlaps(found)
		err = found.configErr
	}
	if err != nil {
		unread = append(unread, fmt.Sprintf("The webhook configurations could not be read: %v", err))
	} else {
		findings = append(findings, laterWebhooks(found)...)
	}
	all, err := w.fleet()
	if err != nil {
		unread = append(unread, fmt.Sprintf("The Clusters could not be read: %v", err))
	} else {
		managers, tracked := w.foreign(all)
		findings = slices.Concat(findings, first(managers), first(tracked))
		unread = append(unread, first(all.unread())...)
	}
	switch {
	case len(findings) > 0:
		return warning("Something may change what Heirloom gives to objects.").with(findings...).with(unread...).
			next("See docs/runbooks/HeirloomDrift.md.")
	case len(unread) > 0:
		return unknown("Not everything could be read.").with(unread...)
	}
	return ok("No other webhook comes after Heirloom's, and nothing else owns what objects inherit.")
}

// overlaps names each of several Heirlooms that handles the objects of the others as well.
func overlaps(found *installation) []string {
	var findings []string
	for _, d := range found.unbounded {
		if len(found.neighbours) > 0 {
			findings = append(findings, fmt.Sprintf("Deployment %s has neither --namespace nor --watch-filter, and handles the objects of the other "+
				"Heirlooms, too: with other regular expressions, both write the same Nodes without end", d))
		}
	}
	return findings
}

// laterWebhooks describes the mutating webhooks of others that see the same objects after Heirloom's. API servers call webhooks in the
// order of the names of their configurations, and those with reinvocationPolicy IfNeeded once more after a later one.
func laterWebhooks(found *installation) []string {
	ours := ""
	var once []string
	for _, c := range found.configurations {
		if c.kind != mutatingKind {
			continue
		}
		if ours == "" || c.name < ours {
			ours = c.name
		}
		for _, w := range c.webhooks {
			if ptr.Deref(w.ReinvocationPolicy, admissionv1.NeverReinvocationPolicy) != admissionv1.IfNeededReinvocationPolicy {
				once = append(once, watched(w.Rules)...)
			}
		}
	}
	var findings []string
	for _, other := range found.others {
		if other.Name < ours {
			continue
		}
		for _, webhook := range other.Webhooks {
			seen := slices.DeleteFunc(watched(webhook.Rules), func(resource string) bool { return !slices.Contains(once, resource) })
			if len(seen) > 0 {
				findings = append(findings, fmt.Sprintf("MutatingWebhookConfiguration %s: webhook %s is called after Heirloom's, for %s",
					other.Name, webhook.Name, strings.Join(seen, ", ")))
			}
		}
	}
	return findings
}

// watched returns what a webhook sees when it is created or updated, of all that inherits.
func watched(rules []admissionv1.RuleWithOperations) []string {
	matches := func(patterns []string, what string) bool {
		return slices.Contains(patterns, what) || slices.Contains(patterns, "*")
	}
	var seen []string
	for _, kind := range []struct{ group, resource string }{
		{clusterv1.GroupVersion.Group, "machinedeployments"}, {clusterv1.GroupVersion.Group, "machinesets"},
		{clusterv1.GroupVersion.Group, "machines"}, {"", "nodes"},
	} {
		if slices.ContainsFunc(rules, func(r admissionv1.RuleWithOperations) bool {
			writes := slices.ContainsFunc(r.Operations, func(o admissionv1.OperationType) bool {
				return o == admissionv1.Create || o == admissionv1.Update || o == admissionv1.OperationAll
			})
			return writes && matches(r.APIGroups, kind.group) && (matches(r.Resources, kind.resource) || slices.Contains(r.Resources, "*/*"))
		}) {
			seen = append(seen, kind.resource)
		}
	}
	return seen
}

// foreign describes the field managers that own what an object should inherit with another value, and the objects that a GitOps tool
// would put back as they are in Git.
func (w *world) foreign(all *fleet) (managers, tracked []string) {
	of := map[string][]string{}
	for _, c := range all.clusters {
		c.each(func(m *snapshot.Member) {
			for _, path := range w.drifted(m, all.policy) {
				for _, name := range controllersOf(m.Object.GetManagedFields(), path) {
					of[name] = append(of[name], fmt.Sprintf("%s (%s)", c.nameOf(m), path))
				}
			}
			if key := trackedBy(m.Object); key != "" && made(m) {
				tracked = append(tracked, fmt.Sprintf("%s is made by Cluster API, and %s says that it is kept in Git", c.nameOf(m), key))
			}
		})
	}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		managers = append(managers, fmt.Sprintf("field manager %s owns what should be inherited, with another value: %s", name, some(of[name])))
	}
	slices.Sort(tracked)
	return managers, tracked
}

// trackedBy returns a label or an annotation by which a GitOps tool recognizes the object as one of its own, or "".
func trackedBy(object metav1.Object) string {
	for _, keys := range []map[string]string{object.GetLabels(), object.GetAnnotations()} {
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			if domain, _, _ := strings.Cut(key, "/"); slices.Contains(inherit.GitOpsDomains, domain) {
				return key
			}
		}
	}
	return ""
}

// made reports whether Cluster API makes an object, so that it declares nothing of yours.
func made(m *snapshot.Member) bool {
	if m.Kind == "MachineDeployment" || m.Kind == "MachinePool" {
		_, managed := m.Object.GetLabels()[clusterv1.ClusterTopologyOwnedLabel]
		return managed
	}
	return m.Node != nil || metav1.GetControllerOf(m.Object) != nil
}

// drifted returns the paths of labels and annotations that an object has with another value than it should inherit.
func (w *world) drifted(m *snapshot.Member, policy inherit.Policy) []fieldpath.Path {
	var paths []fieldpath.Path
	if m.Err != nil {
		return nil
	}
	if m.Node != nil {
		if !m.Node.Decided.Inherits() {
			return nil
		}
		current := inherit.OfNode(m.Node.Node, w.Now())
		result, _ := policy.Node(m.Node.Decided.Source, current, inherit.Privileged)
		for _, key := range inherit.Brought(current, result) {
			if key.What == "label" || key.What == "annotation" {
				paths = append(paths, fieldpath.MakePathOrDie("metadata", key.What+"s", key.Name))
			}
		}
		return paths
	}
	if m.Decided.Untouched() {
		return nil
	}
	plan, err := managedfields.New(m.Object, m.Has, m.Decided.Decision, nil)
	if err != nil {
		return nil
	}
	for _, change := range plan.Changes() {
		if what := change.What; change.Value != nil && (what == "label" || what == "annotation") {
			var path fieldpath.Path
			for _, part := range append(strings.Split(change.Place, "."), change.Name) {
				path = append(path, fieldpath.MakePathOrDie(part)...)
			}
			paths = append(paths, path)
		}
	}
	return paths
}

// controllersOf returns the field managers of a path that are neither Heirloom nor Cluster API.
func controllersOf(entries []metav1.ManagedFieldsEntry, path fieldpath.Path) []string {
	var names []string
	for _, entry := range entries {
		if entry.FieldsV1 == nil || entry.Manager == managedfields.Manager || entry.Manager == "manager" || strings.HasPrefix(entry.Manager, "capi-") {
			continue
		}
		fields := fieldpath.NewSet()
		if err := fields.FromJSON(entry.FieldsV1.GetRawReader()); err == nil && fields.Has(path) {
			names = append(names, entry.Manager)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
