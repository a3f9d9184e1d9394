// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// generated are the parts of names, hashes and other values that differ from run to run.
var generated = []struct {
	what *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`-[bcdfghjklmnpqrstvwxz2456789]{5}\b`), "-SUFFIX"},
	{regexp.MustCompile(`\b[0-9]{5,}-SUFFIX`), "HASH-SUFFIX"}, // of a template that has generated names
	{regexp.MustCompile(`\b[a-z0-9]{6}\.[a-z0-9]{16}\b`), "TOKEN"},
	{regexp.MustCompile(`sha256:[0-9a-f]{64}`), "CERTIFICATE"},
	{regexp.MustCompile(`"timestamp":"[^"]*"`), "TIME"},
	{regexp.MustCompile(`\b2[0-9]{4}\b`), "PORT"}, // of an API server in memory
	{regexp.MustCompile(`(certificates-expiry: ).*`), "${1}TIME"},
	{regexp.MustCompile(`(cluster-namespace|/listener)(: )(alone|beside)`), "${1}${2}NAMESPACE"},
}

// normal leaves out managed fields, status and the entries that only Heirloom propagates: annotated taints, the annotations for
// cluster-autoscaler, the entries of Nodes of a MachinePool without Machines, and a MachinePool's in-place fields in its Machines.
func normal(object unstructured.Unstructured) string {
	labels, annotations := object.GetLabels(), object.GetAnnotations()
	if object.GetKind() == "Node" {
		labels, annotations = ofClusterAPI(object)
	}
	for _, name := range inherit.CapacityAnnotations {
		delete(annotations, name)
	}
	metadata := map[string]any{"name": object.GetName(), "labels": labels, "annotations": annotations}
	owners := []string{}
	for _, ref := range object.GetOwnerReferences() {
		owners = append(owners, ref.Kind+" "+ref.Name)
	}
	slices.Sort(owners)
	metadata["owners"] = owners
	spec, _ := object.Object["spec"].(map[string]any)
	if taints, ok := spec["taints"].([]any); ok {
		taints = slices.DeleteFunc(slices.Clone(taints), onlyHeirloom)
		slices.SortFunc(taints, func(a, b any) int { return strings.Compare(text(a), text(b)) })
		spec["taints"] = taints
		if len(taints) == 0 {
			delete(spec, "taints")
		}
	}
	if deletion, ok := spec["deletion"].(map[string]any); ok && object.GetKind() == "Machine" && isPooled(object) {
		delete(deletion, "nodeDrainTimeoutSeconds") // the only timeout that the steps declare
	}
	raw, err := yaml.Marshal(map[string]any{"kind": object.GetKind(), "metadata": metadata, "spec": spec})
	if err != nil {
		panic(err) // it came from JSON
	}
	normal := string(raw)
	for _, g := range generated {
		normal = g.what.ReplaceAllString(normal, g.with)
	}
	return normal
}

// ofClusterAPI returns a Node's labels and annotations as Heirloom leaves them to Cluster API when it goes: a key that the Node had before
// its Machine is in Heirloom's list until then. It leaves out the records of annotated taints, and everything on a Node of a MachinePool
// without Machines that the tracking annotations list.
func ofClusterAPI(node unstructured.Unstructured) (labels, annotations map[string]string) {
	left := inherit.CleanUp(inherit.NodeState{Labels: node.GetLabels(), Annotations: node.GetAnnotations()}, true)
	labels, annotations = map[string]string{}, map[string]string{}
	maps.Copy(labels, left.Labels)
	maps.Copy(annotations, left.Annotations)
	if withoutMachine(node) {
		for _, key := range strings.Split(annotations[clusterv1.LabelsFromMachineAnnotation], ",") {
			delete(labels, key)
		}
		for _, key := range strings.Split(annotations[clusterv1.AnnotationsFromMachineAnnotation], ",") {
			delete(annotations, key)
		}
		delete(annotations, clusterv1.LabelsFromMachineAnnotation)
		delete(annotations, clusterv1.AnnotationsFromMachineAnnotation)
	}
	tracked := slices.DeleteFunc(strings.Split(annotations[clusterv1.TaintsFromMachineAnnotation], ","), func(entry string) bool {
		return entry == "" || strings.HasPrefix(entry, "annotated-")
	})
	annotations[clusterv1.TaintsFromMachineAnnotation] = strings.Join(tracked, ",")
	return labels, annotations
}

// withoutMachine reports whether a Node belongs to a MachinePool whose provider has no Machines.
func withoutMachine(node unstructured.Unstructured) bool {
	_, has := node.GetAnnotations()[clusterv1.MachineAnnotation]
	return !has && node.GetAnnotations()[clusterv1.OwnerKindAnnotation] == "MachinePool"
}

// isPooled reports whether a Machine belongs to a MachinePool.
func isPooled(machine unstructured.Unstructured) bool {
	_, pooled := machine.GetLabels()[clusterv1.MachinePoolNameLabel]
	return pooled
}

// onlyHeirloom reports whether a taint is one of the annotated taints of the steps.
func onlyHeirloom(t any) bool {
	return strings.Contains(text(t), `"key":"annotated-`)
}
