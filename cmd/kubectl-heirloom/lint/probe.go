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
func notOnNode(policy inherit.Policy, k key) inherit.Why {
	m, has := &clusterv1.Machine{}, k.content()
	m.Labels, m.Annotations = has.Labels, has.Annotations
	from := inherit.SourceOfMachine(m)
	_, dropped := policy.Node(from, inherit.NodeState{}, inherit.Privileged)
	return from.WhyNot(dropped, k.entry())
}

// notOnMachine asks the rules for Machines why one does not get this key of a template.
func notOnMachine(k key) inherit.Why {
	return whyNot(k.entry(), true)(inherit.Policy{}.External(&inherit.Template{Content: k.content()}, inherit.Object{}))
}

// whyNot asks a rule why it does not bring an entry to the top of an object, or to its Machine template.
func whyNot(e inherit.Entry, top bool) func(inherit.Object, inherit.Drops) inherit.Why {
	e.Own = top
	return func(desired inherit.Object, dropped inherit.Drops) inherit.Why {
		return inherit.Decision{Desired: desired, Dropped: dropped}.WhyNot(e)
	}
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
func (w *world) notInherited(policy inherit.Policy, m *clusterv1.Machine, e inherit.Entry) inherit.Why {
	toMachine, toTemplate := whyNot(e, true), whyNot(e, false)
	switch owner := w.ownerOf(m).(type) {
	case *clusterv1.MachineSet:
		if why := toMachine(policy.External(inherit.TemplateOfMachineSet(owner), inherit.Object{})); decisive(why) {
			return why
		}
		if md, ok := w.ownerOf(owner).(*clusterv1.MachineDeployment); ok {
			if why := toTemplate(policy.MachineSet(md, owner)); decisive(why) {
				return why
			}
			if section := w.sectionOf(md, md.Spec.ClusterName); section != nil {
				return toTemplate(policy.MachineDeployment(*section, md))
			}
		}
	case *clusterv1.MachinePool:
		if why := toMachine(policy.External(inherit.TemplateOfMachinePool(owner), inherit.Object{})); decisive(why) {
			return why
		}
		if section := w.sectionOf(owner, owner.Spec.ClusterName); section != nil {
			return toTemplate(policy.MachinePool(*section, owner))
		}
	case nil:
	default:
		return w.notInheritedFromControlPlane(policy, owner, m.Spec.ClusterName, e)
	}
	return inherit.DropElsewhere
}

func (w *world) notInheritedFromControlPlane(policy inherit.Policy, object client.Object, cluster string, e inherit.Entry) inherit.Why {
	cp := &inherit.ControlPlane{}
	if copyInto(object, cp) != nil {
		return inherit.DropElsewhere // it could be read when it was added
	}
	if why := whyNot(e, true)(policy.External(inherit.TemplateOfControlPlane(cp), inherit.Object{})); decisive(why) {
		return why
	}
	if section := w.sectionOf(cp, cluster); section != nil {
		return whyNot(e, false)(policy.ControlPlane(*section, inherit.OfControlPlane(cp, inherit.Layout{})))
	}
	return inherit.DropElsewhere
}

// decisive reports whether a reason is one: the object declares the key, and its rule leaves it out.
func decisive(why inherit.Why) bool { return why != "" && why != inherit.DropElsewhere }

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
