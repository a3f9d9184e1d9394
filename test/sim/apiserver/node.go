// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
)

func defaultNode(object runtime.Object) {
	n, ok := object.(*corev1.Node)
	if !ok {
		return
	}
	if n.Status.Allocatable == nil && n.Status.Capacity != nil {
		n.Status.Allocatable = n.Status.Capacity.DeepCopy()
	}
	if n.Spec.PodCIDRs == nil && n.Spec.PodCIDR != "" {
		n.Spec.PodCIDRs = []string{n.Spec.PodCIDR}
	}
}

// validateNode validates taints: see validateNodeTaints in k8s.io/kubernetes/pkg/apis/core/validation.
func validateNode(object runtime.Object) field.ErrorList {
	node := object.(*corev1.Node) //nolint:forcetypeassert // of its row
	effects := []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}
	seen := map[string]bool{}
	var errs field.ErrorList
	for i, taint := range node.Spec.Taints {
		path := field.NewPath("metadata", "taints").Index(i)
		errs = append(errs, validation.ValidateLabelName(taint.Key, path.Child("key"))...)
		if invalid := utilvalidation.IsValidLabelValue(taint.Value); len(invalid) > 0 {
			errs = append(errs, field.Invalid(path.Child("value"), taint.Value, strings.Join(invalid, ";")))
		}
		if taint.Effect == "" {
			errs = append(errs, field.Required(path.Child("effect"), ""))
		} else if !slices.Contains(effects, taint.Effect) {
			errs = append(errs, field.NotSupported(path.Child("effect"), taint.Effect, effects))
		}
		id := taint.Key + ":" + string(taint.Effect)
		if seen[id] {
			// As in the message of kube-apiserver, whose own type has no names for JSON.
			duplicate := field.Duplicate(path, struct {
				Key, Value string
				Effect     corev1.TaintEffect
				TimeAdded  *metav1.Time
			}{taint.Key, taint.Value, taint.Effect, taint.TimeAdded})
			duplicate.Detail = "taints must be unique by key and effect pair"
			errs = append(errs, duplicate)
		}
		seen[id] = true
	}
	return errs
}

// nodeOf returns the name of a kubelet's Node.
func nodeOf(by user.Info) (string, bool) {
	name, ok := strings.CutPrefix(by.GetName(), "system:node:")
	return name, ok && slices.Contains(by.GetGroups(), user.NodesGroup)
}

// refused reports whether the role system:node has no right to a request.
func refused(ctx context.Context, info *request.RequestInfo) bool {
	by, _ := request.UserFrom(ctx)
	_, kubelet := nodeOf(by)
	return kubelet && info.APIGroup == "" && info.Resource == "nodes" && info.Verb == "delete"
}

func forbidden(resource schema.GroupResource, info *request.RequestInfo, by string) error {
	//nolint:staticcheck // what RBAC says
	return apierrors.NewForbidden(resource, info.Name, fmt.Errorf("User %q cannot %s resource %q in API group %q at the cluster scope",
		by, info.Verb, info.Resource, info.APIGroup))
}

// admitNode implements the plugins TaintNodesByCondition and, unless it is unguarded, NodeRestriction of kube-apiserver. It reports whether
// it changes the Node.
func admitNode(a admission.Attributes, unguarded bool) (touched bool, err error) {
	node, ok := a.GetObject().(*corev1.Node)
	if !ok {
		return false, nil
	}
	if a.GetOperation() == admission.Create && a.GetSubresource() == "" {
		notReady := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
		if !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&notReady) }) {
			node.Spec.Taints, touched = append(node.Spec.Taints, notReady), true
		}
	}
	name, kubelet := nodeOf(a.GetUserInfo())
	if !kubelet || unguarded {
		return touched, nil
	}
	old, _ := a.GetOldObject().(*corev1.Node)
	if err := restricted(name, a.GetName(), node, old); err != nil {
		return touched, admission.NewForbidden(a, err)
	}
	return touched, nil
}

// restricted returns why a kubelet may not write a Node: see admitNode in k8s.io/kubernetes/plugin/pkg/admission/noderestriction.
func restricted(name, requested string, node, old *corev1.Node) error {
	if requested != name {
		return fmt.Errorf("node %q is not allowed to modify node %q", name, requested)
	}
	if old == nil {
		if labels := forbiddenLabels(node.Labels, nil); len(labels) > 0 {
			return fmt.Errorf("node %q is not allowed to set the following labels: %s", name, strings.Join(labels, ", "))
		}
		return nil
	}
	if !apiequality.Semantic.DeepEqual(node.Spec.Taints, old.Spec.Taints) {
		return fmt.Errorf("node %q is not allowed to modify taints", name)
	}
	if !apiequality.Semantic.DeepEqual(node.OwnerReferences, old.OwnerReferences) {
		return fmt.Errorf("node %q is not allowed to modify ownerReferences", name)
	}
	if labels := forbiddenLabels(node.Labels, old.Labels); len(labels) > 0 {
		return fmt.Errorf("is not allowed to modify labels: %s", strings.Join(labels, ", "))
	}
	return nil
}

// forbiddenLabels returns the keys of the labels that differ and that no kubelet may set, sorted.
func forbiddenLabels(a, b map[string]string) []string {
	var forbidden []string
	for _, pair := range [][2]map[string]string{{a, b}, {b, a}} {
		for key, value := range pair[0] {
			if other, ok := pair[1][key]; (!ok || other != value) && !kubeletMaySet(key) && !slices.Contains(forbidden, key) {
				forbidden = append(forbidden, key)
			}
		}
	}
	slices.Sort(forbidden)
	return forbidden
}

// kubeletLabels has the labels in k8s.io/kubelet/pkg/apis.
var kubeletLabels = []string{
	corev1.LabelHostname, corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion,
	corev1.LabelInstanceType, corev1.LabelInstanceTypeStable, corev1.LabelOSStable, corev1.LabelArchStable, "beta.kubernetes.io/os", "beta.kubernetes.io/arch",
}

func kubeletMaySet(key string) bool {
	namespace, _, _ := strings.Cut(key, "/")
	in := func(domain string) bool { return namespace == domain || strings.HasSuffix(namespace, "."+domain) }
	switch {
	case !strings.Contains(key, "/"):
		return true
	case in(corev1.LabelNamespaceNodeRestriction):
		return false
	case slices.Contains(kubeletLabels, key), in(corev1.LabelNamespaceSuffixKubelet), in(corev1.LabelNamespaceSuffixNode):
		return true
	}
	return !in("kubernetes.io") && !in("k8s.io")
}
