// SPDX-License-Identifier: Apache-2.0

// Package bootstrap finds the labels and taints with which kubelets register their Nodes: in bootstrap configurations, their templates and
// control planes of kubeadm, RKE2, K3s, EKS and Talos. It is pure.
package bootstrap

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// Declaration is a label or a taint with which a kubelet registers its Node.
type Declaration struct {
	inherit.Entry
	Value string
	// Field is the path of the list, map or argument that has the entry.
	Field string
}

// Unknown reports whether the value is known only on the Machine, because cloud-init, a shell or a template fills it in.
func (d Declaration) Unknown() bool {
	return strings.Contains(d.Value, "{{") || strings.Contains(d.Value, "$")
}

// Is reports whether a kubelet registers with this value of an entry.
func (d Declaration) Is(e inherit.Entry, value string) bool {
	return d.Entry == e && (d.Value == value || d.Unknown())
}

// configurations are the fields, below spec or spec.template.spec, that have a bootstrap configuration.
//
//nolint:gochecknoglobals // a table that nothing changes
var configurations = [][]string{nil, {"kubeadmConfigSpec"}, {"kthreesConfigSpec"}, {"controlPlaneConfig", "init"}, {"controlPlaneConfig", "controlplane"}}

// Of returns the declarations of an object for kubelets, in the order of its fields. Other kinds of objects have none.
func Of(object map[string]any) (all []Declaration) {
	for _, above := range [][]string{{"spec"}, {"spec", "template", "spec"}} {
		for _, below := range configurations {
			all = append(all, place{value: object}.at(above...).at(below...).declarations()...)
		}
	}
	return all
}

// place is a value in an object, with its path.
type place struct {
	value any
	path  string
}

func (p place) at(names ...string) place {
	for _, name := range names {
		fields, _ := p.value.(map[string]any)
		p = place{fields[name], strings.TrimPrefix(p.path+"."+name, ".")}
	}
	return p
}

// declarations reads a bootstrap configuration. The projects have different fields, so the fields tell them apart.
func (p place) declarations() (all []Declaration) {
	all = p.at("kubeletExtraArgs").arguments() // EKS
	for _, phase := range []string{"initConfiguration", "joinConfiguration"} {
		registration := p.at(phase, "nodeRegistration")
		taints := registration.at("taints")
		items, _ := taints.value.([]any)
		for _, item := range items {
			one := place{value: item}
			all = append(all, taints.taint(corev1.Taint{
				Key: one.at("key").text(), Value: one.at("value").text(), Effect: corev1.TaintEffect(one.at("effect").text()),
			}))
		}
		all = append(all, registration.at("kubeletExtraArgs").arguments()...)
	}
	agent := p.at("agentConfig") // RKE2 and K3s
	all = append(all, agent.at("nodeLabels").labels(agent.at("nodeLabels").texts())...)
	all = append(all, agent.at("nodeTaints").taints(agent.at("nodeTaints").texts())...)
	for _, machine := range p.talos() {
		labels, _ := machine.at("nodeLabels").value.(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(labels)) {
			all = append(all, machine.at("nodeLabels").label(key, fmt.Sprint(labels[key])))
		}
		taints, _ := machine.at("nodeTaints").value.(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(taints)) {
			value, effect, both := strings.Cut(fmt.Sprint(taints[key]), ":")
			if !both {
				value, effect = "", value
			}
			all = append(all, machine.at("nodeTaints").taint(corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)}))
		}
	}
	return all
}

// arguments reads the arguments of a kubelet: a map (v1beta1), or a list of names and values (v1beta2).
func (p place) arguments() (all []Declaration) {
	arguments, _ := p.value.(map[string]any)
	if list, is := p.value.([]any); is {
		arguments = map[string]any{}
		for _, item := range list {
			arguments[place{value: item}.at("name").text()] = place{value: item}.at("value").value
		}
	}
	at := func(name string) (place, []string) {
		text, _ := arguments[name].(string)
		return place{path: p.path + "[" + name + "]"}, strings.Split(text, ",")
	}
	labels, list := at("node-labels")
	all = labels.labels(list)
	taints, list := at("register-with-taints")
	return append(all, taints.taints(list)...)
}

// talos returns the section machine of each machine configuration: of the whole configuration, and of its patches.
func (p place) talos() (all []place) {
	documents := []place{p.at("data")}
	for _, text := range p.at("strategicPatches").texts() {
		documents = append(documents, place{text, p.path + ".strategicPatches"})
	}
	for _, d := range documents {
		for text := range strings.SplitSeq(d.text(), "\n---") {
			content := map[string]any{}
			if yaml.Unmarshal([]byte(text), &content) == nil {
				all = append(all, place{content["machine"], d.path})
			}
		}
	}
	patches, _ := p.at("configPatches").value.([]any)
	for _, patch := range patches {
		one := place{value: patch}
		value, steps := one.at("value").value, strings.Split(strings.Trim(one.at("path").text(), "/"), "/")
		for _, step := range slices.Backward(steps) {
			value = map[string]any{strings.NewReplacer("~1", "/", "~0", "~").Replace(step): value}
		}
		if one.at("op").text() != "remove" {
			all = append(all, place{place{value: value}.at("machine").value, p.path + ".configPatches"})
		}
	}
	return all
}

func (p place) text() string {
	text, _ := p.value.(string)
	return text
}

func (p place) texts() (all []string) {
	items, _ := p.value.([]any)
	for _, item := range items {
		all = append(all, place{value: item}.text())
	}
	return all
}

// labels reads labels such as "a=b".
func (p place) labels(list []string) (all []Declaration) {
	for _, text := range list {
		if key, value, is := strings.Cut(strings.TrimSpace(text), "="); is {
			all = append(all, p.label(key, value))
		}
	}
	return all
}

// taints reads taints such as "a=b:NoSchedule".
func (p place) taints(list []string) (all []Declaration) {
	for _, text := range list {
		if colon := strings.LastIndexByte(text, ':'); colon > 0 {
			key, value, _ := strings.Cut(strings.TrimSpace(text[:colon]), "=")
			all = append(all, p.taint(corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(strings.TrimSpace(text[colon+1:]))}))
		}
	}
	return all
}

func (p place) label(key, value string) Declaration {
	return Declaration{inherit.Entry{What: "label", Name: key, Own: true}, value, p.path}
}

func (p place) taint(t corev1.Taint) Declaration {
	return Declaration{inherit.TaintEntry(taint.IDOf(t)), t.Value, p.path}
}
