// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"fmt"
	"slices"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// topologyManager is the field manager of Cluster API's topology controller.
const topologyManager = "capi-topology"

// PatchOf returns the patch of a ClusterClass, as a source, because of which Heirloom leaves an entry in a control plane's own metadata to
// Cluster API: the patch that may change the entry, or else a patch that may change another entry there. It is empty without such a patch.
func (o *Object) PatchOf(e inherit.Entry) inherit.Source {
	if patch := o.patchAt(pathInTemplate(e)); patch.Object != nil {
		return patch
	}
	return o.patchAt(inherit.TemplateMetadata)
}

// pathInTemplate returns the path of an entry in a control plane's own metadata, in a patch of its template.
func pathInTemplate(e inherit.Entry) string {
	return inherit.TemplateMetadata + "/" + e.What + "s/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(e.Name)
}

func (o *Object) patchAt(path string) inherit.Source {
	if _, is := o.Object.(*inherit.ControlPlane); !is {
		return inherit.Source{}
	}
	for _, d := range o.Sources.All {
		if class, is := d.Object.(*clusterv1.ClusterClass); is {
			if name := inherit.PatchOfControlPlane(class, path); name != "" {
				return inherit.Source{Ref: d.Ref, Field: "spec.patches[" + name + "]"}
			}
		}
	}
	return inherit.Source{}
}

// patched sets the source of an entry in a control plane's own metadata if a patch of its ClusterClass may change it. The patched template is
// what the topology declares: the entry comes from the section that declares its value, or from the patch if Cluster API has written it.
func (e *Entry) patched(o *Object) {
	setByClusterAPI := slices.Concat(inherit.FamilyLabels, inherit.TopologyLabels,
		[]string{clusterv1.TemplateClonedFromNameAnnotation, clusterv1.TemplateClonedFromGroupKindAnnotation})
	if value, declared := o.Declared(e.Of); declared && value == e.Value && o.Would.WhyNot(e.Of) == inherit.DropPatched {
		e.Status = Declared
		e.comesFrom(o)
		return
	}
	patch := o.patchAt(pathInTemplate(e.Of))
	if !e.Of.Own || patch.Object == nil || !slices.Contains(e.Managers, topologyManager) || slices.Contains(setByClusterAPI, e.Of.Name) {
		return
	}
	e.Status, e.From, e.Source = Declared, patch, SourceOf(patch)
	e.Rule = fmt.Sprintf("%s → %s (rule 1)", patch.Kind, o.Kind)
}

// Declared returns the value that the first of the object's sources declares for an entry, and whether there is such a source.
func (o *Object) Declared(e inherit.Entry) (value string, declared bool) {
	for _, d := range o.Sources.All {
		if value, declared = d.Value(e); declared {
			return value, true
		}
	}
	return "", false
}
