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

// generated are the parts of names, hashes and what else differs from run to run.
var generated = []struct {
	what *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`-[bcdfghjklmnpqrstvwxz2456789]{5}\b`), "-SUFFIX"},
	{regexp.MustCompile(`\b[0-9]{5,}-SUFFIX`), "HASH-SUFFIX"}, // of a template with such names in it
	{regexp.MustCompile(`\b[a-z0-9]{6}\.[a-z0-9]{16}\b`), "TOKEN"},
	{regexp.MustCompile(`sha256:[0-9a-f]{64}`), "CERTIFICATE"},
	{regexp.MustCompile(`"timestamp":"[^"]*"`), "TIME"},
	{regexp.MustCompile(`(cluster-namespace: )(alone|beside)`), "${1}NAMESPACE"},
}

// normal leaves out ownership entries, status and what only Heirloom promises: taints declared by annotation, what
// cluster-autoscaler is told, what it brings to the Nodes of a MachinePool without Machines, and a MachinePool's in-place fields in its Machines.
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
		delete(deletion, "nodeDrainTimeoutSeconds") // the only one that the steps declare
	}
	raw, err := yaml.Marshal(map[string]any{"kind": object.GetKind(), "metadata": metadata, "spec": spec})
	if err != nil {
		panic(err) // it has been JSON
	}
	normal := string(raw)
	for _, g := range generated {
		normal = g.what.ReplaceAllString(normal, g.with)
	}
	return normal
}

// ofClusterAPI leaves out of a Node's labels and annotations what Heirloom writes there for taints declared by annotation, its record,
// and all that it brings to a Node of a MachinePool without Machines, which is what the tracking annotations list there.
func ofClusterAPI(node unstructured.Unstructured) (labels, annotations map[string]string) {
	labels, annotations = map[string]string{}, map[string]string{}
	maps.Copy(labels, node.GetLabels())
	maps.Copy(annotations, node.GetAnnotations())
	maps.DeleteFunc(annotations, func(key, _ string) bool { return strings.HasPrefix(key, "heirloom.dev/") })
	delete(labels, inherit.RecordLabel)
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

// withoutMachine tells whether a Node belongs to a MachinePool whose provider has no Machines.
func withoutMachine(node unstructured.Unstructured) bool {
	_, has := node.GetAnnotations()[clusterv1.MachineAnnotation]
	return !has && node.GetAnnotations()[clusterv1.OwnerKindAnnotation] == "MachinePool"
}

// isPooled tells whether a Machine belongs to a MachinePool.
func isPooled(machine unstructured.Unstructured) bool {
	_, pooled := machine.GetLabels()[clusterv1.MachinePoolNameLabel]
	return pooled
}

// onlyHeirloom tells the taints that scenarios declare by annotation.
func onlyHeirloom(t any) bool {
	return strings.Contains(text(t), `"key":"annotated-`)
}
