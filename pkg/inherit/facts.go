// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/yaml"
)

// Fact is a field or a label of a Machine, its InfraMachine or its BootstrapConfig that becomes a label of the Machine's Node.
type Fact struct {
	Kind schema.GroupKind
	// Field is a path such as spec.instanceType, spec.disks[0].type or metadata.labels['rack'].
	Field string
	Label string
	// Presence says that the value is "true" if the field is there, and that there is no value otherwise.
	Presence bool
	// Values are the values of the label for values of the field, if there are any: a value of the field that they lack is a problem.
	Values map[string]string
}

// uninitializedByCloud is the key of the taint that a Node has until a cloud provider has written its labels.
const uninitializedByCloud = "node.cloudprovider.kubernetes.io/uninitialized"

//nolint:gochecknoglobals // tables that nothing changes
var (
	factField = regexp.MustCompile(`^(?:metadata\.(labels|annotations)\['([^']+)'\]|[A-Za-z0-9_]+(?:\[[0-9]{1,2}\])*(?:\.[A-Za-z0-9_]+(?:\[[0-9]{1,2}\])*)*)$`)
	// machineKind is the kind of Machines. failureDomain has the only fields of a Machine that facts read, apart from labels and
	// annotations.
	machineKind   = clusterv1.GroupVersion.WithKind("Machine").GroupKind()
	failureDomain = []string{"spec.failureDomain", "status.failureDomain"}
)

// ParseFact parses "<Kind>.<group>:<field>=<label>", or an object in JSON or YAML, with the keys of the chart's value facts.
func ParseFact(text string) (Fact, error) {
	f, err := readFact(text)
	if err != nil {
		return f, err
	}
	wrong := validation.IsQualifiedName(f.Label)
	switch path := factField.FindStringSubmatch(f.Field); {
	case f.Kind.Kind == "" || f.Kind.Group == "" || path == nil:
		return f, fmt.Errorf("%q: must be <Kind>.<group>:<field>=<label>, such as Machine.cluster.x-k8s.io:spec.failureDomain=topology.kubernetes.io/zone; "+
			"a field may have elements of lists, such as spec.disks[0].type", text)
	case f.Kind == machineKind && path[1] == "" && !slices.Contains(failureDomain, f.Field):
		return f, fmt.Errorf("%q: only %s, labels and annotations of a Machine can be read", text, strings.Join(failureDomain, ", "))
	case len(wrong) > 0:
		return f, fmt.Errorf("%q: the label %q: %s", text, f.Label, strings.Join(wrong, "; "))
	case OfItself(f.Label) != "" || marks(f.Label):
		return f, fmt.Errorf("%q: Nodes never inherit label %q", text, f.Label)
	}
	for from, to := range f.Values {
		if wrong := validation.IsValidLabelValue(to); from == "" || to == "" || len(wrong) > 0 {
			return f, fmt.Errorf("%q: values: %q: %q: neither may be empty, and the second must be a label value: %s", text, from, to, strings.Join(wrong, "; "))
		}
	}
	return f, nil
}

// readFact reads the parts of a fact.
func readFact(text string) (Fact, error) {
	if !strings.HasPrefix(text, "{") {
		kind, rest, _ := strings.Cut(text, ":")
		at := max(0, strings.LastIndexByte(rest, '='))
		return Fact{Kind: schema.ParseGroupKind(kind), Field: rest[:at], Label: strings.TrimPrefix(rest[at:], "=")}, nil
	}
	var said struct {
		Group     string            `json:"group"`
		Kind      string            `json:"kind"`
		FieldPath string            `json:"fieldPath"`
		Label     string            `json:"label"`
		Presence  bool              `json:"presence"`
		Values    map[string]string `json:"values"`
	}
	if err := yaml.UnmarshalStrict([]byte(text), &said); err != nil {
		return Fact{}, fmt.Errorf("%q: must be an object with group, kind, fieldPath, label and, if needed, presence and values: %w", text, err)
	}
	kind := schema.GroupKind{Group: said.Group, Kind: said.Kind}
	return Fact{Kind: kind, Field: said.FieldPath, Label: said.Label, Presence: said.Presence, Values: said.Values}, nil
}

// FactValue is the value of a fact in an object.
type FactValue struct {
	Fact
	// Unknown says that the object could not be read. Value is empty if the object does not have the field, or if the field cannot be the
	// value of a label; then Problem says why.
	Unknown        bool
	Value, Problem string
}

// path returns the keys of maps and the positions in lists, as "[<position>]", that lead to the field.
func (f Fact) path() []string {
	if keyed := factField.FindStringSubmatch(f.Field); keyed[1] != "" {
		return []string{"metadata", keyed[1], keyed[2]}
	}
	return strings.Split(strings.ReplaceAll(f.Field, "[", ".["), ".")
}

// position returns the position in a list of a part of a path.
func position(part string) (at int, is bool) {
	at, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(part, "["), "]"))
	return at, err == nil && strings.HasPrefix(part, "[")
}

// find returns the value at a path in an object. It returns fits = false if the path leads through something else than maps and lists.
func find(value any, path []string) (found any, fits bool) {
	for _, part := range path {
		at, inList := position(part)
		switch v := value.(type) {
		case nil:
			return nil, true
		case map[string]any:
			if value = v[part]; inList {
				return nil, false
			}
		case []any:
			switch {
			case !inList:
				return nil, false
			case at >= len(v):
				return nil, true
			}
			value = v[at]
		default:
			return nil, false
		}
	}
	return value, true
}

// put returns the object with the value at a path. Elements of a list before the position are null.
func put(object any, path []string, value any) any {
	if len(path) == 0 {
		return value
	}
	if at, inList := position(path[0]); inList {
		list, _ := object.([]any)
		list = append(list, make([]any, max(0, at+1-len(list)))...)
		list[at] = put(list[at], path[1:], value)
		return list
	}
	fields, is := object.(map[string]any)
	if !is {
		fields = map[string]any{}
	}
	fields[path[0]] = put(fields[path[0]], path[1:], value)
	return fields
}

// OnlyFacts returns an object of this kind with nothing but its metadata and the fields of facts. Tenants may fill an object of a provider.
func (p Policy) OnlyFacts(kind schema.GroupKind, object map[string]any) map[string]any {
	kept := map[string]any{"apiVersion": object["apiVersion"], "kind": object["kind"], "metadata": object["metadata"]}
	for _, f := range p.FactsOf(kind) {
		value, _ := find(object, f.path())
		if there, _ := find(kept, f.path()); value == nil || there != nil {
			continue
		}
		switch v := value.(type) { // neither a long text nor an object is the value of a label
		case string:
			value = strings.Clone(v[:min(len(v), 2*longest)])
		case []any:
			if value = any([]any{}); len(v) > 0 {
				value = map[string]any{}
			}
		case map[string]any:
			value = map[string]any{}
		}
		put(kept, f.path(), value)
	}
	return kept
}

// In reads the fact from an object.
func (f Fact) In(object map[string]any) FactValue {
	value, fits := find(object, f.path())
	if f.Presence {
		value = presence(value)
	}
	text := fmt.Sprint(value)
	switch value.(type) {
	case string, bool, int64, float64:
	default:
		if fits && value == nil {
			return FactValue{Fact: f}
		}
		return FactValue{Fact: f, Problem: "it is not a string, number or boolean"}
	}
	if to, known := f.Values[text]; known {
		return FactValue{Fact: f, Value: to}
	} else if len(f.Values) > 0 && text != "" {
		return FactValue{Fact: f, Problem: fmt.Sprintf("the values of the fact lack %q", shorten(text))}
	}
	if wrong := validation.IsValidLabelValue(text); len(wrong) > 0 {
		return FactValue{Fact: f, Problem: fmt.Sprintf("%q is not a valid label value: %s", shorten(text), strings.Join(wrong, "; "))}
	}
	return FactValue{Fact: f, Value: text}
}

// presence returns "true" for the value of a field that is there, otherwise nil. An empty object is there: providers switch options on by it.
func presence(value any) any {
	list, isList := value.([]any)
	if value == nil || value == "" || value == false || isList && len(list) == 0 {
		return nil
	}
	return "true"
}

// InMachine reads the fact from a Machine.
func (f Fact) InMachine(m *clusterv1.Machine) FactValue {
	anyOf := func(values map[string]string) map[string]any {
		all := make(map[string]any, len(values))
		for key, value := range values {
			all[key] = value
		}
		return all
	}
	return f.In(map[string]any{
		"metadata": map[string]any{"labels": anyOf(m.Labels), "annotations": anyOf(m.Annotations)},
		"spec":     anyOf(map[string]string{"failureDomain": m.Spec.FailureDomain}),
		"status":   anyOf(map[string]string{"failureDomain": m.Status.FailureDomain}),
	})
}

// OfMachines reports whether the fact is a field or a label of Machines, and not of an object of a provider.
func (f Fact) OfMachines() bool { return f.Kind == machineKind }

// WithFacts returns the source with the known facts as labels, for this Node. A label of the Machine takes precedence, and so
// does a label of another writer on the Node: facts are added after the cloud provider has initialized the Node.
func (s NodeSource) WithFacts(values []FactValue, node Node) NodeSource {
	initializing := slices.ContainsFunc(node.Taints, func(t corev1.Taint) bool { return t.Key == uninitializedByCloud })
	labels, facts := mergeMaps(s.Labels, nil), mergeMaps(s.Facts, nil)
	s.dropped = slices.Clip(s.dropped)
	for _, v := range values {
		entry := Entry{labelKey, v.Label, true}
		switch now, there := node.Labels[v.Label]; {
		case has(labels, v.Label) || initializing && !node.hasFact(v.Label):
		case v.Problem != "":
			s.dropped.drop(entry, DropInvalid, "", fmt.Sprintf("%s of the %s: %s", v.Field, v.Kind.Kind, v.Problem))
		case v.Unknown && there && node.hasFact(v.Label):
			labels[v.Label], facts[v.Label] = now, v.Fact
		case v.Value == "":
		case there && !node.hasFact(v.Label):
			s.dropped.drop(entry, DropSetThere, "", "")
		case s.matched != "" && restricted(v.Label):
			s.dropped.drop(entry, DropUnproven, "", "")
		default:
			labels[v.Label], facts[v.Label] = v.Value, v.Fact
		}
	}
	if len(facts) > 0 {
		s.Labels, s.Facts = labels, facts
	}
	return s
}

// hasFact reports whether Heirloom set a label as a fact. The kubelet may have written the list.
func (n Node) hasFact(label string) bool {
	return slices.Contains(n.Record.Labels, label) || !restricted(label) && n.keys[labelKey][1].Has(label)
}

// withRole returns the source with the label of a role for the Node, unless it is a Node of a control plane or role is empty.
func (s NodeSource) withRole(role string) NodeSource {
	key := clusterv1.NodeRoleLabelPrefix + "/" + role
	if role == "" || s.ControlPlane || has(s.Labels, key) {
		return s
	}
	s.Labels = mergeMaps(s.Labels, map[string]string{key: ""})
	s.Facts = map[string]Fact{key: {Kind: machineKind, Field: "--worker-role", Label: key}}
	return s
}

// FactsOf returns the facts that are read from objects of a kind.
func (p Policy) FactsOf(kind schema.GroupKind) (facts []Fact) {
	for _, f := range p.Facts {
		if f.Kind == kind {
			facts = append(facts, f)
		}
	}
	return facts
}
