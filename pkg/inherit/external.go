// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// External is rules 4 and 8 for the objects beside a Machine: what an InfraMachine or a BootstrapConfig inherits from the
// template of the Machine's owner, which is nil where there is none. That is labels and annotations: the spec is the
// provider's. Labels that the owner selects Machines by are not touched.
func (Policy) External(template *Template) Object {
	if template == nil {
		return Object{}
	}
	return Object{Top: Content{
		Labels:      inheritableLabels(template.Labels, template.Selector),
		Annotations: inheritable(template.Annotations),
	}}
}

// WhyNotExternal says why rules 4 and 8 do not bring an entry that the template declares to an InfraMachine or a BootstrapConfig.
func (t *Template) WhyNotExternal(e Entry) Dropped {
	if e.What != labelKey && e.What != annotationKey {
		return DropElsewhere
	}
	return t.dropped(e)
}

// dropped says why the template's owner does not hand down an entry, unless it is a taint.
func (t *Template) dropped(e Entry) Dropped {
	switch {
	case t == nil || !t.declares(e):
		return DropElsewhere
	case e.What == labelKey:
		return droppedLabel(e.Name, selectedBy(t.Selector))
	case e.What == annotationKey:
		return droppedKey(e.Name)
	}
	return ""
}

// OfExternal returns what an InfraMachine or a BootstrapConfig has.
func OfExternal(object *metav1.PartialObjectMetadata) Object {
	return Object{
		Layout: MetadataLayout(object.GroupVersionKind().Version),
		Top:    Content{Labels: object.Labels, Annotations: object.Annotations},
	}
}

// IsTemplate reports whether a kind of a provider is one of templates, by the name that Cluster API's contract gives to
// them. Templates of infrastructure and bootstrap objects inherit nothing: another template means another rollout.
func IsTemplate(kind string) bool {
	return strings.HasSuffix(kind, "Template")
}
