// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1beta1 "sigs.k8s.io/cluster-api/api/core/v1beta1" //nolint:staticcheck // deprecated and still served
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/manifest"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// subject is an object of a file that is judged.
type subject struct {
	*manifest.Object
	// chained is the object as the owner chain reads it: in v1beta2, or unstructured if it is a control plane. It is nil for the template
	// of a control plane, which inherits nothing.
	chained client.Object
	// carrier is the object as the validating webhook reads it.
	carrier *taint.Carrier
}

func (s *subject) name() string {
	return nameOf(s.GetKind(), s)
}

// nameOf names an object, "<kind> <namespace>/<name>". In a file it may have no namespace.
func nameOf(kind string, object metav1.Object) string {
	if object.GetNamespace() == "" {
		return kind + " " + object.GetName()
	}
	return kind + " " + object.GetNamespace() + "/" + object.GetName()
}

func (s *subject) isControlPlane() bool {
	return s.GroupVersionKind().Group == inherit.ControlPlaneGroup
}

// add adds an object of a file to the world.
func (w *world) add(s *subject) {
	if s.chained != nil {
		w.files[idOf(s.chained)] = s
		w.put(s.chained)
	}
}

// subjectOf returns the object if it is of a kind that declares something for others, and can be read.
func (l *linter) subjectOf(object *manifest.Object) *subject {
	gvk := object.GroupVersionKind()
	s := &subject{Object: object, carrier: &taint.Carrier{}}
	var into client.Object
	group, _, _ := strings.Cut(object.GetAPIVersion(), "/")
	switch {
	case group == inherit.ControlPlaneGroup:
	case group != clusterv1.GroupVersion.Group:
		return nil
	case !l.world.scheme.Recognizes(gvk):
		l.unknown(s)
		return nil
	default:
		known, err := l.world.scheme.New(clusterv1.GroupVersion.WithKind(gvk.Kind))
		typed, ok := known.(client.Object)
		if err != nil || !ok {
			return nil
		}
		into = typed
	}
	unknown, err := s.read(l.world.scheme, into)
	for _, path := range slices.Compact(unknown) { // what is read twice
		l.found(unfilledTemplate, s, path, fillIn, "%s was not judged", path)
	}
	if err != nil {
		l.unreadable(s, err)
		return nil
	}
	return s
}

// unknown reports an object of Cluster API that is of no kind, or of no version, that can be judged.
func (l *linter) unknown(s *subject) {
	if l.world.scheme.Recognizes(clusterv1.GroupVersion.WithKind(s.GetKind())) {
		l.found(unknownKind, s, "apiVersion", "Use "+clusterv1.GroupVersion.String()+", or a newer plugin if your Cluster API serves this version.",
			"version %s is not known, so that the object was not judged", s.GetAPIVersion())
		return
	}
	l.found(unknownKind, s, "kind", "Correct it, or use a newer plugin if your Cluster API has this kind.",
		"%s has no kind %s, so that the object was not judged", clusterv1.GroupVersion.Group, s.GetKind())
}

// read decodes the object in the ways in which it is judged, and returns the fields of which nobody knows what they will be.
func (s *subject) read(scheme *runtime.Scheme, into client.Object) (unknown []string, err error) {
	object := s.Object.DeepCopy().Object
	withoutUnread(object["spec"])
	raw, err := json.Marshal(object)
	if err == nil && s.GroupVersionKind().GroupVersion() == clusterv1beta1.GroupVersion {
		raw, unknown, err = converted(scheme, s.GroupVersionKind(), raw)
	}
	for _, in := range []any{s.carrier, cmp.Or[any](into, &inherit.ControlPlane{})} {
		if err == nil {
			var fields []string
			raw, fields, err = decode(raw, in)
			unknown = append(unknown, fields...)
		}
	}
	if err != nil || into == nil && inherit.IsTemplate(s.GetKind()) {
		return unknown, err
	}
	if s.chained = into; into == nil {
		cp := &unstructured.Unstructured{}
		s.chained, err = cp, cp.UnmarshalJSON(raw)
	}
	return unknown, err
}

// literal is a JSON string at the end of a text.
var literal = regexp.MustCompile(`"([^"\\]|\\.)*"$`)

// decode reads JSON. A variable of a template where no text can be is left out of the result, and of the JSON that is returned.
func decode(raw []byte, into any) (read []byte, unknown []string, err error) {
	for {
		err := json.Unmarshal(raw, into)
		var wrong *json.UnmarshalTypeError
		if !errors.As(err, &wrong) {
			return raw, unknown, err
		}
		at := literal.FindIndex(raw[:wrong.Offset])
		if at == nil || !manifest.Placeholder(string(raw[at[0]:at[1]])) {
			return raw, unknown, err
		}
		raw, unknown = slices.Replace(raw, at[0], at[1], []byte("null")...), append(unknown, fieldIn(wrong))
	}
}

// unread are the fields that no rule reads and that a template fills with numbers: an object is judged without them.
var unread = []string{
	"clusterNetwork", "controlPlaneEndpoint", "healthCheck", "machineHealthCheck", "remediation", "replicas", "revisionHistoryLimit", "rollout", "strategy",
}

func withoutUnread(value any) {
	switch value := value.(type) {
	case map[string]any:
		for name, below := range value {
			if slices.Contains(unread, name) {
				delete(value, name)
			} else if name != "metadata" {
				withoutUnread(below)
			}
		}
	case []any:
		for _, below := range value {
			withoutUnread(below)
		}
	}
}

// converted returns an object of v1beta1 in v1beta2, as Cluster API converts it.
func converted(scheme *runtime.Scheme, gvk schema.GroupVersionKind, raw []byte) (inNewer []byte, unknown []string, err error) {
	older, err := scheme.New(gvk)
	if err != nil {
		return nil, nil, err
	}
	newer, err := scheme.New(clusterv1.GroupVersion.WithKind(gvk.Kind))
	if err != nil {
		return nil, nil, err
	}
	if _, unknown, err = decode(raw, older); err != nil {
		return nil, unknown, err
	}
	if err := scheme.Convert(older, newer, nil); err != nil {
		return nil, unknown, err
	}
	newer.GetObjectKind().SetGroupVersionKind(clusterv1.GroupVersion.WithKind(gvk.Kind))
	inNewer, err = json.Marshal(newer)
	return inNewer, unknown, err
}

// unreadable reports an object with a field of the wrong type. In a template, that may be a variable.
func (l *linter) unreadable(s *subject, err error) {
	path, message := "", err.Error()
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		path = fieldIn(wrong)
		message = fmt.Sprintf("%s: a %s where a %s has to be", path, wrong.Value, kindOf(wrong.Type))
	}
	if wrong == nil && manifest.Placeholder(message) { // it repeats the value, as of a duration
		l.found(unfilledTemplate, s, path, fillIn, "the object was not judged: %s", message)
		return
	}
	l.found(unreadableObject, s, path, "In labels and annotations, put numbers in quotation marks, and words such as true, yes, on and y.",
		"%s", message)
}

// fieldIn is the path of the field, without the names of the Go structs that the decoder puts in.
func fieldIn(wrong *json.UnmarshalTypeError) string {
	steps := slices.DeleteFunc(strings.Split(wrong.Field, "."), func(step string) bool { return step != "" && unicode.IsUpper(rune(step[0])) })
	return strings.Join(steps, ".")
}

func kindOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	case reflect.Slice:
		return "list"
	case reflect.Struct, reflect.Map:
		return "object"
	default:
		return "number"
	}
}
