// SPDX-License-Identifier: Apache-2.0

package taint

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// Role says whose Nodes a taint is for. What is reserved differs between the two (docs/design.md §3).
type Role bool

const (
	// Worker Machines may not carry the control plane's own taint.
	Worker Role = false
	// ControlPlane Machines may.
	ControlPlane Role = true
)

// MostProblems is how many problems of one list are reported. No one reads more, and a forged review could fill the memory with
// them.
const MostProblems = 100

// Validate returns an error for each taint that may not be declared at path, or for the first of them. Taints that old holds
// unchanged are not judged, so that an object that was stored before Heirloom was installed can still be updated.
func Validate(path *field.Path, role Role, taints, old []clusterv1.MachineTaint) field.ErrorList {
	var errs field.ErrorList
	before, seen, unchanged := map[ID]int{}, map[ID]int{}, sets.New(old...)
	for _, t := range old {
		before[MachineID(t)]++
	}
	for i, t := range taints {
		at, id := path.Index(i), MachineID(t)
		if !unchanged.Has(t) {
			errs = append(errs, check(at, role, t)...)
		}
		if seen[id]++; seen[id] > max(1, before[id]) {
			errs = append(errs, field.Duplicate(at, id.String()))
		}
		if len(errs) >= MostProblems {
			break
		}
	}
	return errs
}

// ValidateAnnotations is Validate for the taints that annotations declare. Its errors name the annotation's path.
func ValidateAnnotations(path *field.Path, role Role, annotations, old map[string]string) field.ErrorList {
	var errs field.ErrorList
	for _, name := range []string{AlwaysAnnotation, InitializeAnnotation} {
		value, at := annotations[name], path.Key(name)
		if len(value) > longestList {
			errs = append(errs, field.TooLong(at, "", longestList))
			continue
		}
		errs = append(errs, unreadable(at, value, old[name])...)
		// What could not be read has been judged; what remains is judged as typed taints are.
		taints, _ := declared(annotations, name)
		before, _ := declared(old, name)
		for _, e := range Validate(at, role, taints, before) {
			errs = append(errs, &field.Error{Type: e.Type, Field: at.String(), BadValue: e.BadValue, Detail: e.Detail})
		}
	}
	return errs
}

// unreadable returns an error for each entry of a comma-separated list that is no taint and that old does not have.
func unreadable(at *field.Path, list, old string) field.ErrorList {
	var errs field.ErrorList
	before := sets.New(entriesOf(old)...)
	for _, entry := range entriesOf(list) {
		if before.Has(entry) {
			continue
		}
		if _, err := Parse(entry); err != nil {
			errs = append(errs, field.Invalid(at, entry, err.Error()))
		}
		if len(errs) >= MostProblems {
			break
		}
	}
	return errs
}

// Problem says why a taint may not reach an object, or "", and whether no one may declare its key.
func Problem(role Role, t clusterv1.MachineTaint) (problem string, isReserved bool) {
	if errs := check(nil, role, t); len(errs) > 0 {
		return errs[0].Detail, reserved(role, t.Key) != ""
	}
	return "", false
}

func check(at *field.Path, role Role, t clusterv1.MachineTaint) field.ErrorList {
	var errs field.ErrorList
	if reason := reserved(role, t.Key); reason != "" {
		errs = append(errs, field.Invalid(at.Child("key"), t.Key, reason))
	}
	for _, msg := range validation.IsQualifiedName(t.Key) {
		errs = append(errs, field.Invalid(at.Child("key"), t.Key, msg))
	}
	for _, msg := range validation.IsValidLabelValue(t.Value) {
		errs = append(errs, field.Invalid(at.Child("value"), t.Value, msg))
	}
	if !slices.Contains(effects, t.Effect) {
		errs = append(errs, field.NotSupported(at.Child("effect"), t.Effect, effects))
	}
	if !Always(t) && !Initialize(t) {
		errs = append(errs, field.NotSupported(at.Child("propagation"), t.Propagation, []clusterv1.MachineTaintPropagation{
			clusterv1.MachineTaintPropagationAlways, clusterv1.MachineTaintPropagationOnInitialization,
		}))
	}
	return errs
}

//nolint:gochecknoglobals // nothing changes it
var effects = []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}

// reserved says why no one may declare a taint with this key, or "" if anyone may.
func reserved(role Role, key string) string {
	switch {
	case key == clusterv1.NodeUninitializedTaint.Key, key == clusterv1.NodeOutdatedRevisionTaint.Key:
		return "the key is reserved: Cluster API sets and removes this taint itself"
	case strings.HasPrefix(key, "node.kubernetes.io/") && key != corev1.TaintNodeOutOfService:
		return "the prefix node.kubernetes.io/ is reserved for the kubelet and the node lifecycle controller; only " +
			corev1.TaintNodeOutOfService + " may be set"
	case strings.HasPrefix(key, "node.cloudprovider.kubernetes.io/"):
		return "the prefix node.cloudprovider.kubernetes.io/ is reserved for the kubelet and the cloud controller manager"
	case key == "node-role.kubernetes.io/master":
		return "the key is deprecated since Kubernetes 1.24: use node-role.kubernetes.io/control-plane"
	case key == "node-role.kubernetes.io/control-plane" && role == Worker:
		return "the key is reserved for control plane Machines"
	}
	return ""
}
