// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"context"
	"regexp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// The sorts of keys, as an inherit.Entry has them.
const (
	label      = "label"
	annotation = "annotation"
)

// key is a label's or an annotation's.
type key struct{ sort, name string }

func (k key) entry() inherit.Entry { return inherit.Entry{What: k.sort, Name: k.name} }

// content has nothing but this key.
func (k key) content() inherit.Content {
	if k.sort == label {
		return inherit.Content{Labels: map[string]string{k.name: ""}}
	}
	return inherit.Content{Annotations: map[string]string{k.name: ""}}
}

// notOnNode asks rules 11 and 12 why a Node does not get this key of its Machine.
func notOnNode(policy inherit.Policy, k key) inherit.Dropped {
	m, has := &clusterv1.Machine{}, k.content()
	m.Labels, m.Annotations = has.Labels, has.Annotations
	return policy.WhyNotNode(inherit.SourceOfMachine(m), inherit.NodeState{}, inherit.Privileged, k.entry())
}

// notOnMachine asks the rules for Machines why one does not get this key of a template.
func notOnMachine(k key) inherit.Dropped {
	return (&inherit.Template{Content: k.content()}).WhyNotExternal(k.entry())
}

// flagFor returns the flag of the server, with its value, by which a key reaches Nodes that is outside the domains that all do.
func flagFor(k key) string {
	flag := additionalLabels
	if k.sort == annotation {
		flag = additionalAnnotations
	}
	return flag + "='^" + regexp.QuoteMeta(k.name) + "$'"
}

// ofClusterAPI reports whether a key is one of Cluster API's own, which its controllers read where it is.
func ofClusterAPI(name string) bool {
	domain, _, _ := strings.Cut(name, "/")
	return domain == clusterv1.GroupVersion.Group || strings.HasSuffix(domain, "."+clusterv1.GroupVersion.Group) ||
		name == clusterv1.MachineDeploymentUniqueLabel
}

func has(m map[string]string, key string) bool {
	_, ok := m[key]
	return ok
}

// notInherited asks the rules above a Machine, from the bottom, why it does not get a key that an object up there declares.
func (w *world) notInherited(policy inherit.Policy, m *clusterv1.Machine, e inherit.Entry) inherit.Dropped {
	switch owner := w.ownerOf(m).(type) {
	case *clusterv1.MachineSet:
		if why := inherit.TemplateOfMachineSet(owner).WhyNotExternal(e); decisive(why) {
			return why
		}
		if md, ok := w.ownerOf(owner).(*clusterv1.MachineDeployment); ok {
			if why := policy.WhyNotMachineSet(md, owner, e); decisive(why) {
				return why
			}
			if section := w.sectionOf(md, md.Spec.ClusterName); section != nil {
				return policy.WhyNotMachineDeployment(*section, md, e)
			}
		}
	case *clusterv1.MachinePool:
		if why := inherit.TemplateOfMachinePool(owner).WhyNotExternal(e); decisive(why) {
			return why
		}
		if section := w.sectionOf(owner, owner.Spec.ClusterName); section != nil {
			return policy.WhyNotMachinePool(*section, e)
		}
	case nil:
	default:
		return w.notInheritedFromControlPlane(policy, owner, m.Spec.ClusterName, e)
	}
	return inherit.DropElsewhere
}

func (w *world) notInheritedFromControlPlane(policy inherit.Policy, object client.Object, cluster string, e inherit.Entry) inherit.Dropped {
	cp := &inherit.ControlPlane{}
	if copyInto(object, cp) != nil {
		return inherit.DropElsewhere // it could be read when it was added
	}
	if why := inherit.TemplateOfControlPlane(cp).WhyNotExternal(e); decisive(why) {
		return why
	}
	if section := w.sectionOf(cp, cluster); section != nil {
		return policy.WhyNotControlPlane(*section, e)
	}
	return inherit.DropElsewhere
}

// decisive reports whether a reason is one: the object declares the key, and its rule leaves it out.
func decisive(why inherit.Dropped) bool { return why != "" && why != inherit.DropElsewhere }

// ownerOf returns the controller of an object, or nil.
func (w *world) ownerOf(object client.Object) client.Object {
	ref := metav1.GetControllerOfNoCopy(object)
	if ref == nil {
		return nil
	}
	kind := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind()
	return w.objects[id{kind, types.NamespacedName{Namespace: object.GetNamespace(), Name: ref.Name}}]
}

// sectionOf returns what a topology declares for an object, or nil.
func (w *world) sectionOf(object metav1.Object, name string) *inherit.Section {
	cluster := &clusterv1.Cluster{TypeMeta: typeOf("Cluster")}
	cluster.Namespace, cluster.Name = object.GetNamespace(), name
	cluster, _ = w.objects[idOf(cluster)].(*clusterv1.Cluster)
	if cluster == nil {
		return nil
	}
	class, err := w.chain(types.NamespacedName{}).ClusterClass(context.Background(), cluster)
	if err != nil || class == nil {
		return nil
	}
	return inherit.SectionOf(cluster, class, object)
}
