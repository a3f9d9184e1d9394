// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/owners"
)

// toCome is the part of a name of an object that no file has. No object of an API server can have it.
const toCome = "(to come)"

// descend adds what Cluster API would create below an object, and returns the Machines. Below a topology those are the objects of its
// sections that no file has.
func (w *world) descend(object client.Object) []*clusterv1.Machine {
	switch o := object.(type) {
	case *clusterv1.Cluster:
		return w.belowTopology(o)
	case *clusterv1.ClusterClass:
		if cluster := w.anyClusterOf(o); cluster != nil {
			return w.belowTopology(cluster)
		}
	case *clusterv1.MachineDeployment:
		ms := &clusterv1.MachineSet{TypeMeta: typeOf("MachineSet"), ObjectMeta: below(o, o.Spec.ClusterName)}
		maps.Copy(ms.Labels, selected(o.Spec.Selector, o.Spec.Template.Labels))
		ms.Spec = clusterv1.MachineSetSpec{ClusterName: o.Spec.ClusterName, Selector: o.Spec.Selector}
		ms.Spec.Template.Labels = selected(o.Spec.Selector, o.Spec.Template.Labels)
		w.put(ms)
		return w.descend(ms)
	case *clusterv1.MachineSet:
		return w.machine(o, o.Spec.ClusterName, selected(o.Spec.Selector, o.Spec.Template.Labels))
	case *clusterv1.MachinePool:
		return w.machine(o, o.Spec.ClusterName, nil)
	case *unstructured.Unstructured:
		name := o.GetLabels()[clusterv1.ClusterNameLabel]
		return w.machine(o, name, map[string]string{clusterv1.MachineControlPlaneLabel: ""})
	case *clusterv1.Machine:
		m := o.DeepCopy()
		m.Spec.ProviderID = string(m.UID)
		w.put(m)
		return []*clusterv1.Machine{m}
	}
	return nil
}

// machine adds a Machine of this owner, with the labels that the owner's controller sets.
func (w *world) machine(owner client.Object, cluster string, labels map[string]string) []*clusterv1.Machine {
	m := &clusterv1.Machine{TypeMeta: typeOf("Machine"), ObjectMeta: below(owner, cluster)}
	maps.Copy(m.Labels, labels)
	m.Spec = clusterv1.MachineSpec{ClusterName: cluster, ProviderID: string(owner.GetUID())}
	w.put(m)
	return []*clusterv1.Machine{m}
}

// selected returns the labels that a selector uses, as Cluster API copies them from the template.
func selected(selector metav1.LabelSelector, template map[string]string) map[string]string {
	labels := maps.Clone(selector.MatchLabels)
	if labels == nil {
		labels = map[string]string{}
	}
	for _, requirement := range selector.MatchExpressions {
		if value, ok := template[requirement.Key]; ok {
			labels[requirement.Key] = value
		}
	}
	return labels
}

// below is the metadata of an object that Cluster API would create.
func below(owner client.Object, cluster string) metav1.ObjectMeta {
	gvk := owner.GetObjectKind().GroupVersionKind()
	labels := map[string]string{clusterv1.ClusterNameLabel: cluster}
	return metav1.ObjectMeta{
		Namespace: owner.GetNamespace(), Name: owner.GetName() + toCome, Labels: labels,
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Name: owner.GetName(), UID: owner.GetUID(), Controller: ptr.To(true),
		}},
	}
}

func typeOf(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: clusterv1.GroupVersion.String(), Kind: kind}
}

// belowTopology adds the objects of a topology's sections, and what comes below them.
func (w *world) belowTopology(cluster *clusterv1.Cluster) []*clusterv1.Machine {
	var machines []*clusterv1.Machine
	for _, object := range w.sections(cluster) {
		if w.files[idOf(object)] == nil {
			machines = append(machines, w.descend(object)...)
		}
	}
	return machines
}

// sections returns an object for each section of a topology: that of a file, or one that is added to the world.
func (w *world) sections(cluster *clusterv1.Cluster) []client.Object {
	if !cluster.Spec.Topology.IsDefined() {
		return nil
	}
	w.ensureClass(cluster)
	workers := cluster.Spec.Topology.Workers
	all := []client.Object{w.controlPlaneOf(cluster)}
	for _, section := range workers.MachineDeployments {
		all = append(all, w.ofSection(cluster, section.Name, clusterv1.ClusterTopologyMachineDeploymentNameLabel,
			&clusterv1.MachineDeployment{TypeMeta: typeOf("MachineDeployment"), Spec: clusterv1.MachineDeploymentSpec{ClusterName: cluster.Name}}))
	}
	for _, section := range workers.MachinePools {
		all = append(all, w.ofSection(cluster, section.Name, clusterv1.ClusterTopologyMachinePoolNameLabel,
			&clusterv1.MachinePool{TypeMeta: typeOf("MachinePool"), Spec: clusterv1.MachinePoolSpec{ClusterName: cluster.Name}}))
	}
	return all
}

// ofSection returns the object of a section of workers.
func (w *world) ofSection(cluster *clusterv1.Cluster, name, label string, otherwise client.Object) client.Object {
	kind := otherwise.GetObjectKind().GroupVersionKind().GroupKind()
	for of, object := range w.objects {
		labels := object.GetLabels()
		if of.GroupKind == kind && of.Namespace == cluster.Namespace && labels[label] == name && labels[clusterv1.ClusterNameLabel] == cluster.Name {
			return object
		}
	}
	otherwise.SetNamespace(cluster.Namespace)
	otherwise.SetName(cluster.Name + "-" + name + toCome)
	otherwise.SetLabels(map[string]string{
		clusterv1.ClusterNameLabel: cluster.Name, clusterv1.ClusterTopologyOwnedLabel: "", label: name,
	})
	w.put(otherwise)
	return otherwise
}

// controlPlaneOf returns the control plane of a topology. It consists of Machines if the class says so.
func (w *world) controlPlaneOf(cluster *clusterv1.Cluster) client.Object {
	for of, object := range w.objects {
		labels := object.GetLabels()
		_, owned := labels[clusterv1.ClusterTopologyOwnedLabel]
		if of.Group == inherit.ControlPlaneGroup && of.Namespace == cluster.Namespace && owned && labels[clusterv1.ClusterNameLabel] == cluster.Name {
			return object
		}
	}
	cp := &unstructured.Unstructured{Object: map[string]any{}}
	cp.SetAPIVersion(inherit.ControlPlaneGroup + "/v1beta2")
	cp.SetKind("KubeadmControlPlane")
	cp.SetNamespace(cluster.Namespace)
	cp.SetName(cluster.Name + toCome)
	if ref := cluster.Spec.ControlPlaneRef; ref.Name != "" {
		cp.SetName(ref.Name)
		cp.SetKind(ref.Kind)
	}
	cp.SetLabels(map[string]string{clusterv1.ClusterNameLabel: cluster.Name, clusterv1.ClusterTopologyOwnedLabel: ""})
	if class := w.classOf(cluster); class == nil || inherit.HasMachines(class) {
		_ = unstructured.SetNestedMap(cp.Object, map[string]any{}, "spec", "machineTemplate", "metadata") // there is nothing in the way
	}
	w.put(cp)
	return cp
}

// classOf returns the ClusterClass of a topology, or nil if none of the files has it.
func (w *world) classOf(cluster *clusterv1.Cluster) *clusterv1.ClusterClass {
	class := &clusterv1.ClusterClass{TypeMeta: typeOf("ClusterClass")}
	name, _ := owners.ClassOf(cluster)
	class.Namespace, class.Name = name.Namespace, name.Name
	if w.files[idOf(class)] == nil {
		return nil
	}
	given, _ := w.objects[idOf(class)].(*clusterv1.ClusterClass)
	return given
}

// ensureClass adds an empty ClusterClass if no file has that of a topology: then only what the Cluster declares is known.
func (w *world) ensureClass(cluster *clusterv1.Cluster) {
	if w.classOf(cluster) != nil {
		return
	}
	class := &clusterv1.ClusterClass{TypeMeta: typeOf("ClusterClass")}
	name, _ := owners.ClassOf(cluster)
	class.Namespace, class.Name = name.Namespace, name.Name
	class.Spec.ControlPlane.MachineInfrastructure.TemplateRef.Name = toCome
	for _, section := range cluster.Spec.Topology.Workers.MachineDeployments {
		class.Spec.Workers.MachineDeployments = append(class.Spec.Workers.MachineDeployments, clusterv1.MachineDeploymentClass{Class: section.Class})
	}
	for _, section := range cluster.Spec.Topology.Workers.MachinePools {
		class.Spec.Workers.MachinePools = append(class.Spec.Workers.MachinePools, clusterv1.MachinePoolClass{Class: section.Class})
	}
	w.put(class)
}

// anyClusterOf returns a Cluster with a section for each of the class, unless a file has a Cluster of the class.
func (w *world) anyClusterOf(class *clusterv1.ClusterClass) *clusterv1.Cluster {
	for of, object := range w.objects {
		if cluster, ok := object.(*clusterv1.Cluster); ok && w.files[of] != nil {
			if name, declared := owners.ClassOf(cluster); declared && name == client.ObjectKeyFromObject(class) {
				return nil
			}
		}
	}
	cluster := &clusterv1.Cluster{TypeMeta: typeOf("Cluster")}
	cluster.Namespace, cluster.Name = class.Namespace, class.Name+toCome
	cluster.Spec.Topology.ClassRef = clusterv1.ClusterClassRef{Name: class.Name, Namespace: class.Namespace}
	workers := &cluster.Spec.Topology.Workers
	for _, section := range class.Spec.Workers.MachineDeployments {
		workers.MachineDeployments = append(workers.MachineDeployments, clusterv1.MachineDeploymentTopology{Name: section.Class, Class: section.Class})
	}
	for _, section := range class.Spec.Workers.MachinePools {
		workers.MachinePools = append(workers.MachinePools, clusterv1.MachinePoolTopology{Name: section.Class, Class: section.Class})
	}
	w.put(cluster)
	return cluster
}

// ensureCluster adds the Cluster that Machines name, if no file has it: a Node of a Cluster that does not exist inherits nothing. The
// class of its topology is added as well.
func (w *world) ensureCluster(key types.NamespacedName) {
	cluster := &clusterv1.Cluster{TypeMeta: typeOf("Cluster")}
	cluster.Namespace, cluster.Name = key.Namespace, key.Name
	given, ok := w.objects[idOf(cluster)].(*clusterv1.Cluster)
	switch {
	case !ok:
		w.put(cluster)
	case given.Spec.Topology.IsDefined():
		w.ensureClass(given)
	}
}
