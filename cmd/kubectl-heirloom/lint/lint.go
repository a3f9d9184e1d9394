// SPDX-License-Identifier: Apache-2.0

// Package lint judges manifests of Cluster API before they are applied. It is pure: objects in, findings out. It has no rules of
// inheritance: judge.go evaluates the objects of the files with pkg/owners, as the server does, and compares their declarations with the
// entries that arrive at a Node. This file reads the objects and judges each alone. report.go has the lint rules and the findings.
package lint

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1beta1 "sigs.k8s.io/cluster-api/api/core/v1beta1" //nolint:staticcheck // deprecated and still served
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/manifest"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/owners"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// Settings are the settings of the server that will handle the manifests.
type Settings struct {
	Policy    inherit.Policy
	Origin    string // the source of the settings; empty for the defaults, which the report then mentions
	Namespace string // of objects without a namespace; empty for the only namespace that the other objects name
}

// linter judges a set of manifests.
type linter struct {
	Settings
	world    world
	chain    *owners.Chain
	configs  map[string]*manifest.Object // all objects of the files, by configName
	findings []Finding
}

// subject is an object of a file to judge.
type subject struct {
	*manifest.Object
	chained client.Object   // the object as the owner chain reads it, in v1beta2
	carrier taint.Carrier   // the object as the validating webhook reads it
	below   []client.Object // the objects that propagate its declarations
	unknown []error         // the fields that its kind does not have
}

// Lint judges the objects together: a Cluster with its ClusterClass, and a MachineDeployment with the Cluster that manages it.
func Lint(set *manifest.Set, by Settings) (*Report, error) {
	by.Policy.PaceEviction, by.Policy.SkipNothing = false, true // lint knows no Nodes, and a pause ends
	l := &linter{Settings: by, world: world{}, configs: map[string]*manifest.Object{}}
	l.chain = &owners.Chain{Cache: l.world, Layout: func(_ context.Context, gvk schema.GroupVersionKind) (inherit.Layout, error) {
		return inherit.ControlPlaneLayout(gvk.Version, func(...string) bool { return true }), nil // with room for all fields of the contract
	}}
	for _, t := range set.Templates {
		if strings.Contains(t.Text, clusterv1.GroupVersion.Group) {
			l.found(unfilledTemplate, &subject{Object: t}, "", fillIn+" For a Helm chart, check its rendered manifests.", "this is a template, which was not read")
		}
	}
	l.incomplete(set.Incomplete)
	var subjects []*subject
	for _, object := range l.ofClusterAPI(set.Objects) {
		if s := l.read(object); s != nil {
			subjects = append(subjects, s)
			l.world.add(s)
		}
	}
	for _, s := range subjects {
		s.below = l.world.below(s)
	}
	l.givenTwice(subjects)
	for _, s := range subjects {
		l.itself(s)
		l.world.add(s) // each of several objects with the same name has its turn
		for _, object := range s.below {
			if err := l.judge(context.Background(), object); err != nil {
				return nil, fmt.Errorf("%s:%d: %w", s.File, s.Line(""), err)
			}
		}
	}
	return l.report(len(subjects)), nil
}

// ofClusterAPI returns the objects of Cluster API, and sets the namespace of objects that have none. It keeps all objects in configs.
func (l *linter) ofClusterAPI(objects []*manifest.Object) (all []*manifest.Object) {
	named := sets.New[string]()
	for _, object := range objects {
		group, _, _ := strings.Cut(object.GetAPIVersion(), "/") // also where the version is missing
		if group == clusterv1.GroupVersion.Group || group == inherit.ControlPlaneGroup {
			all = append(all, object)
			named.Insert(object.GetNamespace())
		}
	}
	if others := sets.List(named.Delete("")); len(others) == 1 {
		l.Namespace = cmp.Or(l.Namespace, others[0])
	}
	for _, object := range all {
		object.SetNamespace(cmp.Or(object.GetNamespace(), l.Namespace))
	}
	for _, object := range objects {
		l.configs[configName(object.GetKind(), cmp.Or(object.GetNamespace(), l.Namespace), object.GetName())] = object
	}
	return all
}

// found adds a finding of a rule about a field of an object.
func (l *linter) found(rule Rule, s *subject, field, advice, format string, args ...any) {
	l.findings = append(l.findings, Finding{Rule: rule.ID, Severity: rule.Severity, Object: nameOf(s.GetKind(), s), Field: field,
		File: s.File, Line: s.Line(field), Message: fmt.Sprintf(format, args...), Advice: advice})
}

// nameOf names an object, "<kind> <namespace>/<name>". In a file it may have no namespace, and a template has no name.
func nameOf(kind string, object metav1.Object) string {
	return strings.TrimSpace(kind + " " + strings.TrimPrefix(object.GetNamespace()+"/"+object.GetName(), "/"))
}

var (
	// known has the served versions of Cluster API, and decoder converts from them as Cluster API does.
	known   = runtime.NewScheme()
	decoder = func() runtime.Decoder {
		utilruntime.Must(clusterv1.AddToScheme(known))
		utilruntime.Must(clusterv1beta1.AddToScheme(known))
		return serializer.NewCodecFactory(known, serializer.EnableStrict).UniversalDecoder(clusterv1.GroupVersion)
	}()
	// literal matches a JSON string at the end of a text.
	literal = regexp.MustCompile(`"([^"\\]|\\.)*"$`)
)

// fillIn is the advice for templates.
const fillIn = "Fill in its variables first, as clusterctl generate does."

// read reads an object to judge; nil if it declares nothing for others, or cannot be read.
func (l *linter) read(object *manifest.Object) *subject {
	s, kind, fields := &subject{Object: object}, object.GetKind(), maps.Clone(object.Object)
	delete(fields, "status") // a Machine with a Node inherits like any other Machine
	raw, err := json.Marshal(fields)
	if err == nil {
		err = l.decode(s, raw)
	}
	switch {
	case err == nil:
		if _, inherits := owners.KindOf(s.chained); inherits || kind == "Cluster" || kind == "ClusterClass" {
			return s
		}
	case manifest.Placeholder(err.Error()): // the error repeats the value
		l.found(unfilledTemplate, s, "", fillIn, "the object was not checked: %v", err)
	case runtime.IsNotRegisteredError(err):
		field := map[bool]string{true: "apiVersion", false: "kind"}[known.Recognizes(clusterv1.GroupVersion.WithKind(kind))]
		l.found(unknownKind, s, field, "Correct it, or use a newer plugin if your Cluster API serves it.",
			"kind %s of %s is unknown, so the object was not checked", kind, object.GetAPIVersion())
	default:
		field, wrong := "", &json.UnmarshalTypeError{}
		if errors.As(err, &wrong) {
			field, err = wrong.Field, fmt.Errorf("%s: found %s, expected %s", wrong.Field, wrong.Value, wrong.Type.Kind())
		}
		l.found(unreadableObject, s, field, "In labels and annotations, put numbers in quotation marks, and words such as true, yes, on and y.", "%v", err)
	}
	return nil
}

// decode reads JSON. It drops a template's variable from a field that is no string, because its value is unknown.
func (l *linter) decode(s *subject, raw []byte) error {
	for {
		err, wrong := s.decode(raw), &json.UnmarshalTypeError{}
		if !errors.As(err, &wrong) || !manifest.Placeholder(string(literal.Find(raw[:wrong.Offset]))) {
			return err
		}
		raw = slices.Concat(literal.ReplaceAll(raw[:wrong.Offset], []byte("null")), raw[wrong.Offset:])
		name := wrong.Field[strings.LastIndexByte(wrong.Field, '.')+1:]
		if slices.Contains([]string{"labels", "annotations", "taints", inherit.FieldOf(name).Name()}, name) {
			l.found(unfilledTemplate, s, wrong.Field, fillIn, "%s was not checked", wrong.Field)
		}
	}
}

// decode reads JSON as the owner chain and as the validating webhook read it.
func (s *subject) decode(raw []byte) error {
	object, err := runtime.Object(&inherit.ControlPlane{}), error(nil)
	if s.GroupVersionKind().Group == inherit.ControlPlaneGroup {
		err = json.Unmarshal(raw, object)
	} else if object, _, err = decoder.Decode(raw, nil, nil); err == nil || runtime.IsStrictDecodingError(err) {
		if strict, unknown := runtime.AsStrictDecodingError(err); unknown {
			s.unknown = strict.Errors()
		}
		raw, err = json.Marshal(object)
	}
	s.chained, _ = object.(client.Object)
	return cmp.Or(err, json.Unmarshal(raw, &s.carrier))
}

// itself finds mistakes in an object alone, regardless of the objects above and below it.
func (l *linter) itself(s *subject) {
	if name, line := s.Duplicate(); line > 0 {
		l.found(duplicateKey, s, "", "Remove the duplicate. If another object begins here, add a line --- before it.",
			"duplicate key %s: only the last value counts", name)
		l.findings[len(l.findings)-1].Line = line
	}
	l.unknownFields(s)
	for _, err := range taint.ValidateCarrier(&s.carrier, nil, s.GroupVersionKind().Group == inherit.ControlPlaneGroup) {
		if value := fmt.Sprint(err.BadValue); manifest.Placeholder(value) {
			l.found(unfilledTemplate, s, err.Field, fillIn, "the taint %s was not checked", value)
		} else {
			l.found(refusedTaint, s, err.Field, "Correct or remove the taint: Heirloom's webhook refuses the object.", "%s", err.ErrorBody())
		}
	}
	kind := s.GroupVersionKind().Kind
	for _, place := range s.carrier.Places(kind) {
		for _, mistake := range inherit.Mistakes(place, taint.Place{}) {
			if !s.carrier.IsManaged() && !manifest.Placeholder(mistake.String()) {
				l.found(mistakenKey, s, fmt.Sprintf("%s.%ss[%s]", place.Path, mistake.What, mistake.Name), "Correct, move or remove it.", "%v", mistake)
			}
		}
	}
	if inherit.Names(kind) {
		for _, problem := range l.Policy.NamingProblems(s.carrier.Metadata.Annotations) {
			l.found(namesNothing, s, "", "Correct or remove the entry: it has no effect.", "%s", problem)
		}
	}
	switch o := s.chained.(type) {
	case *clusterv1.MachinePool:
		if len(s.carrier.Spec.Template.Spec.Taints) > 0 {
			l.found(typedInPool, s, "spec.template.spec.taints", "Declare them with the annotations "+taint.AlwaysAnnotation+" and "+
				taint.InitializeAnnotation+" of spec.template.metadata.", "Cluster API refuses typed taints in a MachinePool")
		}
	case *clusterv1.Cluster:
		l.misplaced(s, inherit.Content{}, "a section of spec.topology")
	case *clusterv1.ClusterClass:
		l.misplaced(s, inherit.Content{}, "a section of spec")
		l.patches(s, o)
	}
}

// patches reports JSON patches of a ClusterClass that replace a map of the control plane's own metadata. An add replaces a map as well.
func (l *linter) patches(s *subject, class *clusterv1.ClusterClass) {
	for i, patch := range class.Spec.Patches {
		for j, d := range patch.Definitions {
			if !inherit.SelectsControlPlane(class, d.Selector) {
				continue
			}
			for k, p := range d.JSONPatches {
				if lost := replaces(p.Path); lost != "" && (p.Op == "add" || p.Op == "replace") {
					l.found(mapReplaced, s, fmt.Sprintf("spec.patches[%d].definitions[%d].jsonPatches[%d].path", i, j, k),
						"Patch single keys instead, such as "+inherit.TemplateMetadata+"/labels/team.",
						"patch %s replaces %s of the control plane's template: the control plane itself loses the %s that spec.controlPlane or a topology declares",
						patch.Name, p.Path, lost)
				}
			}
		}
	}
}

// replaces names the maps of a control plane's own metadata that a JSON patch of its template at this path replaces; empty for none.
func replaces(path string) string {
	switch {
	case path == inherit.TemplateMetadata+"/labels", path == inherit.TemplateMetadata+"/annotations":
		return strings.TrimPrefix(path, inherit.TemplateMetadata+"/")
	case slices.Contains([]string{"/spec", "/spec/template", inherit.TemplateMetadata}, path):
		return "labels and annotations"
	}
	return ""
}

// misplaced reports entries for Nodes in the object's own metadata. Entries that the template also has are correct: a topology, or the
// author of the object, put them in both places.
func (l *linter) misplaced(s *subject, template inherit.Content, where string) {
	for _, e := range keys(inherit.Content{Labels: s.GetLabels(), Annotations: s.GetAnnotations()}) {
		if _, both := template.Value(e); !both && l.onNode(e) == "" {
			l.found(wrongPlace, s, fmt.Sprintf("metadata.%ss[%s]", e.What, e.Name), fmt.Sprintf("Move it to the %ss of %s.", e.What, where),
				"%s %s is for Nodes, but reaches no Node from here", e.What, e.Name)
		}
	}
}

// keys returns the labels and annotations of a content.
func keys(of inherit.Content) (all []inherit.Entry) {
	for name := range of.Labels {
		all = append(all, inherit.Entry{What: "label", Name: name})
	}
	for name := range of.Annotations {
		all = append(all, inherit.Entry{What: "annotation", Name: name})
	}
	return all
}
