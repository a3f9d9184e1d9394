// SPDX-License-Identifier: Apache-2.0

package origin_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/origin"
	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// A family in short form: what each object carries, in its template or, for the Machine and the Node and where the name
// says so, at its top. An object that is "-" or empty does not exist; "." carries nothing.
//
//	label a=1 | annotation b=2 | taint gpu=true:NoSchedule@Always
type family struct {
	mdTop, md, ms, msTop, m, node string
	// managed is who owns what on the explained object: "kubectl label a | manager taint gpu:NoSchedule".
	managed string
}

func (f family) build(t *testing.T) origin.Family {
	t.Helper()
	var built origin.Family
	if exists(f.md) {
		built.MachineDeployment = &capi.MachineDeployment{ObjectMeta: named("md", ""), Spec: capi.WorkersSpec{Template: template(t, f.md)}}
		built.MachineDeployment.Labels, built.MachineDeployment.Annotations, _ = read(t, f.mdTop)
	}
	if exists(f.ms) || exists(f.msTop) {
		built.MachineSet = &capi.MachineSet{ObjectMeta: named("ms", "MachineDeployment/md"), Spec: capi.WorkersSpec{Template: template(t, f.ms)}}
		built.MachineSet.Labels, built.MachineSet.Annotations, _ = read(t, f.msTop)
		built.MachineSet.ManagedFields = managedFields(t, f.managed)
	}
	if exists(f.m) {
		built.Machine = &capi.Machine{ObjectMeta: named("m", "MachineSet/ms")}
		built.Machine.Labels, built.Machine.Annotations, built.Machine.Spec.Taints = read(t, f.m)
		built.Machine.ManagedFields = managedFields(t, f.managed)
	}
	if exists(f.node) {
		built.Node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", ManagedFields: managedFields(t, f.managed)}}
		var taints []clusterv1.MachineTaint
		built.Node.Labels, built.Node.Annotations, taints = read(t, f.node)
		for _, declared := range taints {
			built.Node.Spec.Taints = append(built.Node.Spec.Taints, taint.ForNode(declared))
		}
	}
	return built
}

func exists(s string) bool { return s != "" && s != "-" }

// named returns the metadata of an object in namespace default; controller is "<kind>/<name>".
func named(name, controller string) metav1.ObjectMeta {
	meta := metav1.ObjectMeta{Namespace: "default", Name: name}
	if kind, owner, ok := strings.Cut(controller, "/"); ok {
		meta.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: owner, Controller: new(true)}}
	}
	return meta
}

func template(t *testing.T, s string) capi.MachineTemplate {
	t.Helper()
	var result capi.MachineTemplate
	result.Labels, result.Annotations, result.Spec.Taints = read(t, s)
	return result
}

// read reads what an object carries. An annotation may hold commas; a taint without @ is Always.
func read(t *testing.T, s string) (labels, annotations map[string]string, taints []clusterv1.MachineTaint) {
	t.Helper()
	labels, annotations = map[string]string{}, map[string]string{}
	for entry := range strings.SplitSeq(s, "|") {
		if entry = strings.TrimSpace(entry); entry == "" || entry == "." {
			continue
		}
		kind, rest, _ := strings.Cut(entry, " ")
		key, value, _ := strings.Cut(rest, "=")
		switch kind {
		case "label":
			labels[key] = value
		case "annotation":
			annotations[key] = value
		case "taint":
			text, propagation, _ := strings.Cut(rest, "@")
			parsed, err := taint.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			if propagation == "" {
				propagation = "Always"
			}
			taints = append(taints, clusterv1.MachineTaint{
				Key: parsed.Key, Value: parsed.Value, Effect: parsed.Effect, Propagation: clusterv1.MachineTaintPropagation(propagation),
			})
		default:
			t.Fatalf("bad fixture %q", entry)
		}
	}
	return labels, annotations, taints
}

// managedFields writes managed fields as an API server does; "taints" is the whole list of a Node.
func managedFields(t *testing.T, s string) []metav1.ManagedFieldsEntry {
	t.Helper()
	var entries []metav1.ManagedFieldsEntry
	for entry := range strings.SplitSeq(s, "|") {
		words := strings.Fields(entry)
		if len(words) == 0 {
			continue
		}
		entries = append(entries, metav1.ManagedFieldsEntry{
			Manager: words[0], Operation: metav1.ManagedFieldsOperationUpdate, FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(field(t, words[1:])),
		})
	}
	return entries
}

func field(t *testing.T, words []string) string {
	t.Helper()
	switch words[0] {
	case "template":
		return fmt.Sprintf(`{"f:spec":{"f:template":%s}}`, field(t, words[1:]))
	case "label", "annotation":
		return fmt.Sprintf(`{"f:metadata":{"f:%ss":{"f:%s":{}}}}`, words[0], words[1])
	case "taint":
		key, effect, _ := strings.Cut(words[1], ":")
		return fmt.Sprintf(`{"f:spec":{"f:taints":{"k:{\"effect\":\"%s\",\"key\":\"%s\"}":{".":{},"f:key":{}}}}}`, effect, key)
	case "taints":
		return `{"f:spec":{"f:taints":{}}}`
	}
	t.Fatalf("bad fixture %q", words)
	return ""
}

// lines writes an explanation down, one line per entry; entries that Heirloom owns have a star.
func lines(e *origin.Explanation) []string {
	var all []string
	for _, entry := range e.Entries {
		star := ""
		if entry.OwnedByHeirloom {
			star = "*"
		}
		all = append(all, fmt.Sprintf("%s%s %s=%s <- %s", star, entry.Kind, entry.Key, entry.Value, entry.From))
	}
	return all
}
