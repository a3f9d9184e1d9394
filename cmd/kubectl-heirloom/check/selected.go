// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// selection tells for which namespaces an API server calls a webhook: an operator may exclude some.
type selection struct {
	*world
	selector labels.Selector
}

// calls returns the selection of a webhook as it is registered. One that is not registered, or cannot be read, counts as called
// everywhere, so that a dry run shows what happens.
func (w *world) calls(kind, webhook string) selection {
	all := selection{w, labels.Everything()}
	found, err := w.installation()
	if err != nil || found.configErr != nil {
		return all
	}
	for _, c := range found.configurations {
		live, has := c.webhook(webhook)
		if c.kind != kind || !has || live.NamespaceSelector == nil {
			continue
		}
		if selector, err := metav1.LabelSelectorAsSelector(live.NamespaceSelector); err == nil {
			return selection{w, selector}
		}
	}
	return all
}

// in reports whether the webhook is called for objects of a namespace. A user who may not read the Namespace knows its name at least.
func (s selection) in(ctx context.Context, namespace string) bool {
	if s.selector.Empty() {
		return true
	}
	object := &corev1.Namespace{}
	if err := s.Client.Get(ctx, types.NamespacedName{Name: namespace}, object); err != nil {
		object.Labels = map[string]string{}
	}
	return s.selector.Matches(labels.Merge(object.Labels, labels.Set{corev1.LabelMetadataName: namespace}))
}

// namespace returns one for which the webhook is called: the preferred one if possible, and otherwise another, or "".
func (s selection) namespace(ctx context.Context, preferred string) string {
	if s.in(ctx, preferred) {
		return preferred
	}
	list := &corev1.NamespaceList{}
	if err := s.Client.List(ctx, list); err != nil {
		return ""
	}
	for i := range list.Items {
		if name := list.Items[i].Name; list.Items[i].DeletionTimestamp == nil && s.in(ctx, name) {
			return name
		}
	}
	return ""
}
