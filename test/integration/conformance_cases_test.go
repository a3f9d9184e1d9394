// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// topologyCases returns the cases of rules 1 to 3.
func topologyCases() []conformanceCase {
	var cases []conformanceCase
	for _, p := range conformingProviders() {
		cases = append(cases, conformanceCase{rule: 1, child: p.kind, declares: columns(), set: func(l *descent) {
			l.inClassWithControlPlane(p, !p.withoutMachines)
		}})
	}
	return append(cases,
		conformanceCase{rule: 1, child: "ModernControlPlane of a class without Machines", declares: columns(), set: func(l *descent) {
			l.inClassWithControlPlane(conformingProviders()[1], false)
		}},
		conformanceCase{rule: 2, child: "MachineDeployment", declares: columns(), set: func(l *descent) {
			l.child = inTopology(l.workers("MachineDeployment"), clusterv1.ClusterTopologyMachineDeploymentNameLabel)
			l.inClassWithWorkers("machineDeployments", everything, selected)
		}},
		conformanceCase{rule: 3, child: "MachinePool", declares: columns(), set: func(l *descent) {
			l.child = inTopology(l.pool(), clusterv1.ClusterTopologyMachinePoolNameLabel)
			l.inClassWithWorkers("machinePools", annotated)
		}},
	)
}

// inTopology sets the labels with which Cluster API creates an object of a topology's section.
func inTopology(object *unstructured.Unstructured, names ...string) *unstructured.Unstructured {
	labels := object.GetLabels()
	labels[clusterv1.ClusterTopologyOwnedLabel] = ""
	for _, name := range names {
		labels[name] = "the-section"
	}
	object.SetLabels(labels)
	return object
}

// inClassWithControlPlane makes the child a control plane. machines sets whether its ClusterClass has Machines for it.
func (l *descent) inClassWithControlPlane(p provider, machines bool) {
	l.cached = true
	class, topology := l.class(p, machines), l.topology()
	l.room = sectionPlace().ofControlPlane()
	l.owns(class, func(object map[string]any, s state) {
		ofClass, _ := s.divided()
		l.room.below("spec", "controlPlane").put(object, ofClass)
	})
	l.owns(topology, func(object map[string]any, s state) {
		_, ofCluster := s.divided()
		l.room.below("spec", "topology", "controlPlane").put(object, ofCluster)
	})
	l.child = inTopology(l.controlPlane(p))
	l.stored = func() {
		// Cluster API adds the reference to the Cluster when the control plane exists.
		set(topology.Object, l.ref(p.apiVersion(), p.kind, l.name), "spec", "controlPlaneRef")
		l.declare(l.state)
	}
	l.into = []target{{metadataPlace(), everything}}
	if p.withoutMachines {
		return
	}
	ofMachines := everything
	if !machines {
		ofMachines = func(c content) content { return c.only(taintColumn, fieldColumn) }
	}
	l.into = append(l.into, target{p.template, ofMachines})
}

// inClassWithWorkers adds a section for the child to the ClusterClass and to the topology.
func (l *descent) inClassWithWorkers(sections string, arrives func(content) content, held ...string) {
	l.cached = true
	ofClass := sectionPlace()
	l.room = sectionPlace()
	if sections == "machinePools" {
		ofClass, l.room = ofClass.ofPool(), l.room.ofPool()
	}
	l.owns(l.class(conformingProviders()[0], true), func(object map[string]any, s state) {
		class, _ := s.divided(held...)
		ofClass.put(sectionIn(object, "spec", "workers", sections), class)
	})
	l.owns(l.topology(), func(object map[string]any, s state) {
		_, topology := s.divided(held...)
		l.room.put(sectionIn(object, "spec", "topology", "workers", sections), topology)
	})
	l.into = []target{{metadataPlace(), everything}, {templatePlace(), arrives}}
}

// divided returns the declarations of the ClusterClass and of the Cluster in the state. Each declaration has another value for the
// labels that select the child.
func (s state) divided(held ...string) (class, cluster content) {
	another := neverInherited()
	for _, key := range append([]string{clusterv1.ClusterNameLabel}, held...) {
		another = another.and(content{labelColumn: {key: "another"}})
	}
	declared := s.declared.and(s.witness)
	if s.byClass {
		return declared.and(another), content{}
	}
	class, cluster = split(declared)
	return class.and(another), cluster.and(another)
}

// sectionIn returns the only section in the list at path.
func sectionIn(object map[string]any, path ...string) map[string]any {
	value, _ := valueAt(object, path)
	sections, _ := value.([]any)
	section, ok := sections[0].(map[string]any)
	if !ok {
		panic("a fixture is wrong: a section is no object")
	}
	return section
}

// topology returns a Cluster with a topology that declares nothing.
func (l *descent) topology() *unstructured.Unstructured {
	section := func() []any { return []any{map[string]any{"class": "the-class", "name": "the-section"}} }
	topology := map[string]any{
		"version": "v1.36.0",
		"workers": map[string]any{"machineDeployments": section(), "machinePools": section()},
	}
	topology["classRef"] = map[string]any{"name": l.name}
	cluster := l.cluster()
	set(cluster.Object, topology, "spec", "topology")
	return cluster
}

// class returns a ClusterClass that declares nothing.
func (l *descent) class(p provider, machines bool) *unstructured.Unstructured {
	ref := func(apiVersion, kind string) map[string]any {
		template := map[string]any{"apiVersion": apiVersion, "kind": kind + "Template", "name": l.name}
		return map[string]any{"templateRef": template}
	}
	section := func() []any {
		config, infrastructure := kubeadmConfig(), fakeMachine()
		refs := map[string]any{
			"bootstrap": ref(config.apiVersion, config.kind), "infrastructure": ref(infrastructure.apiVersion, infrastructure.kind),
		}
		refs["class"] = "the-class"
		return []any{refs}
	}
	controlPlane := ref(p.apiVersion(), p.kind)
	if machines {
		controlPlane["machineInfrastructure"] = ref(fakeMachine().apiVersion, fakeMachine().kind)
	}
	return l.core("ClusterClass", map[string]any{
		"controlPlane":   controlPlane,
		"infrastructure": ref(fakeMachine().apiVersion, "FakeCluster"),
		"workers":        map[string]any{"machineDeployments": section(), "machinePools": section()},
	})
}

// workerCases returns the cases of rules 5, 6 and 8.
func workerCases() []conformanceCase {
	cases := []conformanceCase{
		{rule: 5, child: "MachineSet", declares: inMetadata(), set: func(l *descent) {
			l.machineSetOf(l.owns(l.workers("MachineDeployment"), l.fromMetadata(templatePlace())))
			l.into = []target{
				{metadataPlace(), everything},
				{templatePlace(), func(c content) content { return c.only(labelColumn) }},
			}
		}},
		{rule: 6, child: "MachineSet", declares: columns(), set: func(l *descent) {
			l.machineSetOf(l.owns(l.workers("MachineDeployment"), l.from(templatePlace(), selected)))
			l.into = []target{
				{metadataPlace(), func(c content) content { return c.only(labelColumn) }},
				{templatePlace(), everything},
			}
		}},
	}
	machineSet := func(l *descent) *unstructured.Unstructured {
		return l.owns(l.workers("MachineSet"), l.from(templatePlace(), selected))
	}
	for _, kind := range []externalKind{fakeMachine(), exampleMachine(), kubeadmConfig()} {
		cases = append(cases, early(8, "", machineSet, kind))
	}
	return append(cases, childCases(8, "", machineSet, fakeMachine(), exampleMachine(), kubeadmConfig())...)
}

// machineSetOf makes the child a MachineSet, as its MachineDeployment's controller creates it without propagation.
func (l *descent) machineSetOf(md *unstructured.Unstructured) {
	l.create(l.cluster())
	l.child = controlledBy(l.workers("MachineSet"), md, true)
	l.child.SetLabels(map[string]string{clusterv1.ClusterNameLabel: l.name, selected: l.name})
}

// inMetadata returns the columns that an object's metadata can hold: taints as annotations.
func inMetadata() []column {
	return []column{labelColumn, annotationColumn, taintColumn}
}

// controlPlaneCases returns the cases of rule 4.
func controlPlaneCases() []conformanceCase {
	var cases []conformanceCase
	for _, p := range conformingProviders() {
		if p.withoutMachines {
			continue
		}
		owner := func(l *descent) *unstructured.Unstructured {
			return l.owns(l.controlPlane(p), l.from(p.template))
		}
		cases = append(cases, childCases(4, " of "+p.kind, owner, fakeMachine(), kubeadmConfig())...)
		if p.kind == "KubeadmControlPlane" || p.kind == "OlderControlPlane" {
			cases = append(cases, early(4, " of "+p.kind, owner, fakeMachine()))
		}
	}
	return cases
}

// childCases returns the cases of a Machine and of its external objects, for one kind of owner.
func childCases(rule int, of string, owner func(*descent) *unstructured.Unstructured, externals ...externalKind) []conformanceCase {
	cases := []conformanceCase{{rule: rule, child: "Machine" + of, declares: columns(), set: func(l *descent) {
		l.create(l.cluster())
		l.child = l.machineOf(owner(l), fakeMachine())
		l.into = []target{{machinePlace(), alsoTyped}}
	}}}
	for _, kind := range externals {
		cases = append(cases, conformanceCase{rule: rule, child: kind.kind + of, declares: columns(), set: func(l *descent) {
			l.create(l.cluster())
			l.externalOf(owner(l), kind)
		}})
	}
	return cases
}

// early returns the case of an object that Cluster API creates before its Machine. Until the Machine exists, the object's owner is the
// Machine's owner, and the loop gets no event for the object.
func early(rule int, of string, owner func(*descent) *unstructured.Unstructured, kind externalKind) conformanceCase {
	name := kind.kind + of + " before its Machine"
	return conformanceCase{rule: rule, child: name, declares: columns(), onlyAdmission: true, set: func(l *descent) {
		l.create(l.cluster())
		l.child = controlledBy(l.externalObject(kind), owner(l), false)
		l.into = []target{{metadataPlace(), everything}}
	}}
}

// machineOf returns a Machine of an owner, only with the fields and labels that the owner's controller needs.
func (l *descent) machineOf(owner *unstructured.Unstructured, infrastructure externalKind) *unstructured.Unstructured {
	m := controlledBy(l.bareMachine(infrastructure), owner, true)
	labels := m.GetLabels()
	if owner.GetKind() == "MachineSet" {
		labels[selected] = l.name
	} else if owner.GetKind() != "MachinePool" {
		labels[clusterv1.MachineControlPlaneLabel] = ""
	}
	m.SetLabels(labels)
	return m
}

// externalOf makes the child an external object of a Machine. It also stores a template with the same owner, which inherits nothing.
func (l *descent) externalOf(owner *unstructured.Unstructured, kind externalKind) {
	l.cached = true
	infrastructure := fakeMachine()
	if kind.kind == exampleMachine().kind {
		infrastructure = kind
	}
	m := l.machineOf(owner, infrastructure)
	l.create(m)
	l.child = controlledBy(l.externalObject(kind), m, true)
	l.into = []target{{metadataPlace(), everything}}
	template := l.object(fakeMachine().apiVersion, "FakeMachineTemplate", map[string]any{
		"template": map[string]any{"spec": map[string]any{"providerID": "none"}},
	})
	l.standsBy(controlledBy(template, owner, false))
}
