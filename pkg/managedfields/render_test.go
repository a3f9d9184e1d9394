// SPDX-License-Identifier: Apache-2.0

package managedfields_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/managedfields"
)

func TestApplyConfiguration(t *testing.T) {
	Expect := NewWithT(t).Expect
	o := machine(content{labels: "a=1,b=2,theirs=1,mine=1"}, ours(labelA), theirs("{'f:metadata': {'f:labels': {'f:b': {}, 'f:theirs': {}}}}"))
	o.SetName("m")
	o.SetNamespace("ns")
	o.SetUID("uid")
	o.SetResourceVersion("7")
	plan := planOf(t, o, fromOwner(content{labels: "a=1,b=1,theirs=1,new=1", annotations: "n=1", taints: "gpu=1:NoSchedule,z:NoExecute@OnInitialization"}.top()))
	config, err := plan.ApplyConfiguration(version, "Machine", o)
	Expect(err).NotTo(HaveOccurred())
	// With the UID an object that is gone is not created again, with the version nothing comes back that has gone from it meanwhile.
	Expect(asJSON(t, config.Object)).To(MatchYAML(`
apiVersion: cluster.x-k8s.io/v1beta2
kind: Machine
metadata: {name: m, namespace: ns, uid: uid, resourceVersion: "7", labels: {a: "1", b: "1", new: "1"}, annotations: {n: "1"}}
spec: {taints: [{key: gpu, value: "1", effect: NoSchedule, propagation: Always}, {key: z, effect: NoExecute, propagation: OnInitialization}]}`))
	config, err = planOf(t, machine(content{labels: "a=1"}, ours(labelA)), fromOwner(content{}.top())).ApplyConfiguration(version, "Machine", o)
	Expect(err).NotTo(HaveOccurred())
	Expect(config.Object).NotTo(HaveKey("spec"))
	Expect(config.GetLabels()).To(BeEmpty(), "an apply without it removes what is ours")
}

// entry begins every entry of managedFields that is ours; its end are the fields.
const entry = `{"manager":"heirloom","operation":"Apply","apiVersion":"cluster.x-k8s.io/v1beta2","time":"2026-11-21T12:00:00Z","fieldsType":"FieldsV1","fieldsV1":`

// TestPatch holds the exact operations, in order, and that an API server can carry them out.
func TestPatch(t *testing.T) {
	const ab, a = `{"f:metadata":{"f:labels":{"f:a":{},"f:b":{}}}}}`, `{"f:metadata":{"f:labels":{"f:a":{}}}}}`
	fields := object("Machine", inherit.Object{Top: inherit.Content{Fields: inherit.Fields{
		Seconds:        inherit.Seconds{inherit.NodeDrainTimeout: new(int32(90)), inherit.MinReadySeconds: new(int32(5))},
		ReadinessGates: []clusterv1.MachineReadinessGate{{ConditionType: "example.com/Ready", Polarity: clusterv1.NegativePolarityCondition}},
	}}})
	null := machineSet(content{})
	null.Object["spec"] = map[string]any{"template": nil}
	for _, tc := range []struct {
		name    string
		object  *unstructured.Unstructured
		desired inherit.Object
		want    []string
	}{
		{
			name: "a missing map is created, with our entry", object: machine(content{}), desired: content{labels: "b=2,a=1"}.top(),
			want: []string{`{"op":"add","path":"/metadata/labels","value":{"a":"1","b":"2"}}`, `{"op":"add","path":"/metadata/managedFields","value":[` + entry + ab + `]}`},
		},
		{
			name: "a map is replaced as a whole, our entry comes behind older ones", object: machine(content{labels: "mine=1"}, theirs(labelB)), desired: content{labels: "a=1"}.top(),
			want: []string{`{"op":"add","path":"/metadata/labels","value":{"a":"1","mine":"1"}}`, `{"op":"add","path":"/metadata/managedFields/1","value":` + entry + a + `}`},
		},
		{
			name: "what was removed comes back without a new entry", object: machine(content{}, ours(labelA)), desired: content{labels: "a=1"}.top(),
			want: []string{`{"op":"add","path":"/metadata/labels","value":{"a":"1"}}`},
		},
		{
			name: "the last label goes with its map and its entry", object: machine(content{labels: "a=1"}, ours(labelA)),
			want: []string{`{"op":"remove","path":"/metadata/labels"}`, `{"op":"add","path":"/metadata/managedFields","value":[]}`},
		},
		{
			name: "the rest of an entry stays", object: machine(content{labels: "a=2"}, ours("{}"), managed("user", update, labelsAB)), desired: content{labels: "a=1"}.top(),
			want: []string{
				`{"op":"add","path":"/metadata/labels","value":{"a":"1"}}`,
				`{"op":"add","path":"/metadata/managedFields","value":[` + entry + a + `,{"manager":"user","operation":"Update","apiVersion":"cluster.x-k8s.io/v1beta2","time":"2026-11-21T11:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:labels":{"f:b":{}}}}}]}`,
			},
		},
		{
			name: "a taint is owned as an element of its list", object: machine(content{taints: "z:NoExecute"}), desired: content{taints: "gpu=1:NoSchedule"}.top(),
			want: []string{
				`{"op":"add","path":"/spec/taints","value":[{"effect":"NoExecute","key":"z","propagation":"Always"},{"effect":"NoSchedule","key":"gpu","propagation":"Always","value":"1"}]}`,
				`{"op":"add","path":"/metadata/managedFields","value":[` + entry + `{"f:spec":{"f:taints":{"k:{\"effect\":\"NoSchedule\",\"key\":\"gpu\"}":{".":{},"f:effect":{},"f:key":{},"f:propagation":{},"f:value":{}}}}}}]}`,
			},
		},
		{
			name: "fields are where the API has them", object: machine(content{}), desired: contentOf(fields),
			want: []string{
				`{"op":"add","path":"/spec","value":{}}`, `{"op":"add","path":"/spec/deletion","value":{}}`, `{"op":"add","path":"/spec/deletion/nodeDrainTimeoutSeconds","value":90}`,
				`{"op":"add","path":"/spec/minReadySeconds","value":5}`, `{"op":"add","path":"/spec/readinessGates","value":[{"conditionType":"example.com/Ready","polarity":"Negative"}]}`,
				`{"op":"add","path":"/metadata/managedFields","value":[` + entry + `{"f:spec":{"f:deletion":{"f:nodeDrainTimeoutSeconds":{}},"f:minReadySeconds":{},"f:readinessGates":{"k:{\"conditionType\":\"example.com/Ready\"}":{".":{},"f:conditionType":{},"f:polarity":{}}}}}}]}`,
			},
		},
		{
			name: "parents that are missing or null are created once", object: null, desired: content{labels: "a=1", taints: "gpu:NoSchedule"}.template(),
			want: []string{
				`{"op":"add","path":"/spec/template","value":{}}`, `{"op":"add","path":"/spec/template/metadata","value":{}}`, `{"op":"add","path":"/spec/template/metadata/labels","value":{"a":"1"}}`,
				`{"op":"add","path":"/spec/template/spec","value":{}}`, `{"op":"add","path":"/spec/template/spec/taints","value":[{"effect":"NoSchedule","key":"gpu","propagation":"Always"}]}`,
				`{"op":"add","path":"/metadata/managedFields","value":[` + entry + `{"f:spec":{"f:template":{"f:metadata":{"f:labels":{"f:a":{}}},"f:spec":{"f:taints":{"k:{\"effect\":\"NoSchedule\",\"key\":\"gpu\"}":{".":{},"f:effect":{},"f:key":{},"f:propagation":{}}}}}}}}]}`,
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			plan := planOf(t, tc.object, fromOwner(tc.desired))
			NewWithT(t).Expect(operations(t, plan, tc.object)).To(Equal(tc.want))
			if len(tc.want) > 0 {
				NewWithT(t).Expect(planOf(t, patched(t, plan, tc.object), fromOwner(tc.desired)).Needed()).To(BeFalse(), "once is enough")
			}
		})
	}
}

// The API server keeps entries by operation, second and manager. Ours has to stand in its place among them, or the next
// write would sort the list and store a new version.
func TestEntriesStayInTheAPIServersOrder(t *testing.T) {
	const labelZ = "{'f:metadata': {'f:labels': {'f:z': {}}}}"
	at := func(entry metav1.ManagedFieldsEntry, after time.Duration) metav1.ManagedFieldsEntry {
		entry.Time = &metav1.Time{Time: now.Add(after)}
		return entry
	}
	timeless := managed("timeless", apply, labelZ)
	timeless.Time = nil
	for _, tc := range []struct {
		name             string
		current, desired content
		fields           []metav1.ManagedFieldsEntry
		want             string
	}{
		{
			name: "a new entry comes behind older applies and before updates", desired: content{labels: "a=1"}, want: "timeless capi-machineset heirloom user",
			fields: entries(timeless, theirs(labelZ), managed("user", update, labelZ)),
		},
		{
			name: "a new entry comes before newer applies", desired: content{labels: "a=1"}, want: "heirloom capi-machineset user",
			fields: entries(at(theirs(labelZ), time.Hour), managed("user", update, labelZ)),
		},
		{
			name: "within a second the manager's name decides", desired: content{labels: "a=1"}, want: "capi-machineset heirloom zorro",
			fields: entries(at(theirs(labelZ), time.Millisecond), at(managed("zorro", apply, labelZ), 0)),
		},
		{
			name: "an entry that changes moves to its new place", current: content{labels: "a=1"}, desired: content{labels: "a=1,b=2"}, want: "capi-machineset heirloom user",
			fields: entries(ours(labelA), at(theirs(labelZ), -time.Minute), managed("user", update, labelZ)),
		},
		{
			name: "entries of which nothing is left go, wherever they stand", current: content{labels: "a=2"}, desired: content{labels: "a=1"}, want: "two heirloom two",
			fields: entries(managed("one", apply, labelA), managed("two", apply, labelZ), managed("three", update, labelA), managed("two", update, labelZ)),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := machine(tc.current, tc.fields...)
			var managers []string
			for _, entry := range patched(t, planOf(t, o, fromOwner(tc.desired.top())), o).GetManagedFields() {
				managers = append(managers, entry.Manager)
			}
			NewWithT(t).Expect(strings.Join(managers, " ")).To(Equal(tc.want))
		})
	}
}

func TestPatchOfWhatIsNoObject(t *testing.T) {
	for raw, problem := range map[string]string{
		`{"metadata":{},"spec":"text"}`:          "reading the object: .spec",
		`{"metadata":{},"spec":{"template":[]}}`: "reading the object: .spec.template",
		`{`:                                      "unexpected end",
		`null`:                                   "reading the object: it is null",
	} {
		_, err := planOf(t, machineSet(content{}), fromOwner(content{labels: "a=1"}.template())).Patch([]byte(raw), version, now)
		NewWithT(t).Expect(err).To(MatchError(ContainSubstring(problem)))
	}
}

// These are the fields below spec.machineTemplate by each contract.
const (
	newer = "metadata spec.taints spec.deletion.nodeDrainTimeoutSeconds spec.deletion.nodeDeletionTimeoutSeconds"
	older = "metadata taints nodeDrainTimeout"
)

// read returns the object of a document.
func read(t *testing.T, text string, managed ...metav1.ManagedFieldsEntry) *unstructured.Unstructured {
	t.Helper()
	o := (&world{kind: "Machine"}).empty()
	NewWithT(t).Expect(yaml.Unmarshal([]byte(text), &o.Object)).To(Succeed())
	for field, kind := range map[string]string{"template": "MachineSet", "machineTemplate": anyControlPlane} {
		if _, has, _ := unstructured.NestedMap(o.Object, "spec", field); has {
			o.SetKind(kind)
		}
	}
	o.SetManagedFields(managed)
	return o
}

// contentIn is what an object has. The schema of a control plane has these fields.
func contentIn(o *unstructured.Unstructured, schema string) inherit.Object {
	if o.GetKind() != anyControlPlane {
		return contentOf(o)
	}
	return controlPlaneIn(o, schema)
}

func controlPlaneIn(o *unstructured.Unstructured, schema string) inherit.Object {
	return inherit.OfControlPlane(as(&inherit.ControlPlane{}, o), inherit.ControlPlaneLayout("v1beta2", func(path ...string) bool {
		return slices.Contains(strings.Fields(schema), strings.TrimPrefix(strings.Join(path, "."), "spec.machineTemplate."))
	}))
}

// bothWays holds that what the webhook answers and what the loop applies lead to the same object with the same owners (docs/design.md
// §5), by the very library that the API server applies with. It returns the operations on content, and what they make of the object.
func bothWays(t *testing.T, o *unstructured.Unstructured, schema string, desired inherit.Object) (content []string, result []byte) {
	t.Helper()
	Expect := NewWithT(t).Expect
	managers, err := fieldManagersOnce()
	Expect(err).NotTo(HaveOccurred())
	plan, err := managedfields.New(o, contentIn(o, schema), fromOwner(desired), nil)
	Expect(err).NotTo(HaveOccurred())
	admitted := patched(t, plan, o)
	config, err := plan.ApplyConfiguration(version, o.GetKind(), o)
	Expect(err).NotTo(HaveOccurred())
	applied, err := managers.applied(o, config, managedfields.Manager, true)
	Expect(err).NotTo(HaveOccurred())
	owners := ownersOf(applied)
	if len(o.GetManagedFields()) == 0 {
		delete(owners, "before-first-apply/Update") // to whom API servers give what nobody has claimed yet
	}
	Expect(ownersOf(admitted)).To(Equal(owners))
	again, err := managedfields.New(admitted, contentIn(admitted, schema), fromOwner(desired), nil)
	Expect(err).NotTo(HaveOccurred())
	Expect(again.Needed()).To(BeFalse(), "once is enough")
	for _, object := range []*unstructured.Unstructured{admitted, applied} {
		object.SetManagedFields(nil)
		prune(object.Object)
		delete(object.Object, "apiVersion")
		delete(object.Object, "kind")
	}
	result = asJSON(t, admitted.Object)
	Expect(asJSON(t, applied.Object)).To(MatchJSON(result))
	return withoutOwners(operations(t, plan, o)), result
}

// withoutOwners leaves out operations on managed fields.
func withoutOwners(lines []string) []string {
	return slices.DeleteFunc(lines, func(line string) bool { return strings.Contains(line, `"path":"/metadata/managedFields`) })
}

// prune does what the API server does: null is taken for what is not there.
func prune(object map[string]any) {
	maps.DeleteFunc(object, func(_ string, value any) bool { return value == nil })
	for _, value := range object {
		if nested, ok := value.(map[string]any); ok {
			prune(nested)
		}
	}
}

func TestAdmissionEqualsApply(t *testing.T) {
	const labelsAZ = "{'f:metadata': {'f:labels': {'f:a': {}, 'f:z': {}}}}"
	for _, tc := range []struct {
		name             string
		current, desired content
		fields           []metav1.ManagedFieldsEntry
	}{
		{name: "something is added to nothing", desired: content{"a=1", "b=2", "gpu=1:NoSchedule"}},
		{name: "something is added to what others have", current: content{"z=1", "y=2", "x:NoExecute"}, desired: content{"a=1", "b=2", "gpu=1:NoSchedule"}, fields: entries(theirs("{'f:metadata': {'f:labels': {'f:z': {}}}}"))},
		{name: "the right value stays whose it is", current: content{labels: "a=1", taints: "gpu:NoSchedule"}, desired: content{labels: "a=1", taints: "gpu:NoSchedule"}, fields: entries(theirs(labelA))},
		{name: "nothing is declared any more", current: content{labels: "a=1,z=1", taints: "gpu=1:NoSchedule"}, fields: entries(ours(gpuWithValue), theirs(labelsAZ))},
		{name: "nothing is declared any more, and another owns it too", current: content{labels: "a=1", taints: "gpu=1:NoSchedule"}, fields: entries(ours(gpuWithValue), theirs(gpuWithValue))},
		{name: "a label's value is taken", current: content{labels: "a=2"}, desired: content{labels: "a=1"}, fields: entries(theirs(labelA))},
		{name: "a label's value is taken from two", current: content{labels: "a=2"}, desired: content{labels: "a=1"}, fields: entries(theirs(labelA), managed("user", update, labelsAZ))},
		{name: "our own label's value changes", current: content{labels: "a=2"}, desired: content{labels: "a=1"}, fields: entries(ours(labelA))},
		{name: "a taint's value is taken", current: content{taints: "gpu=2:NoSchedule"}, desired: content{taints: "gpu=1:NoSchedule"}, fields: entries(theirs(gpuWithValue))},
		{name: "a taint gets a value", current: content{taints: "gpu:NoSchedule"}, desired: content{taints: "gpu=1:NoSchedule"}, fields: entries(theirs(gpu))},
		{name: "a taint's propagation is taken", current: content{taints: "gpu:NoSchedule@OnInitialization"}, desired: content{taints: "gpu:NoSchedule"}, fields: entries(theirs(gpu))},
		{name: "a taint's propagation is taken, its equal value is not", current: content{taints: "gpu=1:NoSchedule@OnInitialization"}, desired: content{taints: "gpu=1:NoSchedule"}, fields: entries(theirs(gpuWithValue))},
		{name: "our own taint loses its value", current: content{taints: "gpu=1:NoSchedule"}, desired: content{taints: "gpu:NoSchedule"}, fields: entries(ours(gpuWithValue))},
		{name: "another's taint with a value is declared without one", current: content{taints: "gpu=1:NoSchedule"}, desired: content{taints: "gpu:NoSchedule"}, fields: entries(theirs(gpuWithValue))},
		{name: "nobody's taint with a value is declared without one", current: content{taints: "gpu=1:NoSchedule"}, desired: content{taints: "gpu:NoSchedule"}},
		{name: "our own taint loses its value, which another owns too", current: content{taints: "gpu=1:NoSchedule"}, desired: content{taints: "gpu:NoSchedule"}, fields: entries(ours(gpuWithValue), theirs(gpuWithValue))},
		{name: "one taint goes, another comes", current: content{taints: "gpu=1:NoSchedule"}, desired: content{taints: "gpu=1:NoExecute"}, fields: entries(ours(gpuWithValue))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, at := range []struct {
				object  *unstructured.Unstructured
				desired inherit.Object
				wrap    string
			}{{machine(tc.current), tc.desired.top(), "%s"}, {machineSet(tc.current), tc.desired.template(), "{'f:spec': {'f:template': %s}}"}} {
				identify(at.object)
				fields := slices.Clone(tc.fields)
				for i := range fields {
					fields[i] = managed(fields[i].Manager, fields[i].Operation, fmt.Sprintf(at.wrap, fields[i].FieldsV1.GetRawString()))
				}
				if len(fields) > 0 { // an apply that gives something up takes what nobody owns around it
					fields = append(fields, managed("creator", update, fmt.Sprintf(at.wrap, "{'f:spec': {'f:clusterName': {}, 'f:bootstrap': {'f:dataSecretName': {}}}}")))
				}
				at.object.SetManagedFields(fields)
				bothWays(t, at.object, "", at.desired)
			}
		})
	}
}

// inherits is content at both places; drain and deletion are timeouts in seconds.
type inherits struct {
	top, template   content
	drain, deletion *int32
}

func (i inherits) object() inherit.Object {
	template := i.template.content()
	template.Fields = inherit.Fields{Seconds: inherit.Seconds{inherit.NodeDrainTimeout: i.drain, inherit.NodeDeletionTimeout: i.deletion}}
	return inherit.Object{Top: i.top.content(), Template: &template}
}

func TestControlPlaneOfEachContract(t *testing.T) {
	gets := inherits{top: content{labels: "a=1"}, template: content{labels: "b=2", annotations: "note=1", taints: "gpu:NoSchedule"}, drain: new(int32(90)), deletion: new(int32(0))}.object()
	const gpu = `[{"effect":"NoSchedule","key":"gpu","propagation":"Always"}]`
	metadata := []string{
		`{"op":"add","path":"/metadata/labels","value":{"a":"1"}}`,
		`{"op":"add","path":"/spec/machineTemplate/metadata","value":{}}`,
		`{"op":"add","path":"/spec/machineTemplate/metadata/labels","value":{"b":"2"}}`,
		`{"op":"add","path":"/spec/machineTemplate/metadata/annotations","value":{"note":"1"}}`,
	}
	for _, tc := range []struct {
		name, has string
		want      []string
	}{
		{name: "the v1beta2 contract has fields in spec.machineTemplate.spec", has: newer, want: append(slices.Clone(metadata),
			`{"op":"add","path":"/spec/machineTemplate/spec","value":{}}`,
			`{"op":"add","path":"/spec/machineTemplate/spec/taints","value":`+gpu+`}`,
			`{"op":"add","path":"/spec/machineTemplate/spec/deletion","value":{}}`,
			`{"op":"add","path":"/spec/machineTemplate/spec/deletion/nodeDrainTimeoutSeconds","value":90}`,
			`{"op":"add","path":"/spec/machineTemplate/spec/deletion/nodeDeletionTimeoutSeconds","value":0}`,
		)},
		{name: "the v1beta1 contract has fields in spec.machineTemplate", has: older, want: append(slices.Clone(metadata),
			`{"op":"add","path":"/spec/machineTemplate/taints","value":`+gpu+`}`,
			`{"op":"add","path":"/spec/machineTemplate/nodeDrainTimeout","value":"1m30s"}`,
		)},
		{name: "a kind with neither has metadata", want: metadata[:1]},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := read(t, "{metadata: {}, spec: {machineTemplate: {}}}", theirs("{'f:spec': {'f:machineTemplate': {}}}"))
			content, _ := bothWays(t, o, tc.has, gets)
			NewWithT(t).Expect(content).To(Equal(tc.want))
		})
	}
}

// TestWhatMayNotBeEmpty: Cluster API's CRDs forbid an empty template metadata and an empty deletion. They go with the last
// that was in them; the object's own metadata never do.
func TestWhatMayNotBeEmpty(t *testing.T) {
	const labels, drain = "'f:metadata': {'f:labels': {'f:a': {}}}", "'f:deletion': {'f:nodeDrainTimeoutSeconds': {}}"
	const z, ownsZ = "taints: [{key: z, effect: NoExecute, propagation: Always}]", `'f:spec': {'f:taints': {'k:{"effect":"NoExecute","key":"z"}': {'.': {}, 'f:effect': {}, 'f:key': {}, 'f:propagation': {}}}}`
	in := func(place, fields string) string { return "{'f:spec': {'f:" + place + "': {" + fields + "}}}" }
	for _, tc := range []struct {
		name, object string
		// has are the fields of a control plane.
		has, ours, theirs string
		desired           inherits
		want              []string
		result            string
	}{
		{
			name: "the last label and the last annotation go with the metadata, once", ours: in("template", "'f:metadata': {'f:labels': {'f:a': {}}, 'f:annotations': {'f:note': {}}}"), theirs: in("template", "'f:spec': {}"),
			object: "{metadata: {}, spec: {template: {metadata: {labels: {a: '1'}, annotations: {note: '1'}}, spec: {}}}}", result: "{metadata: {}, spec: {template: {spec: {}}}}",
			want: []string{`{"op":"remove","path":"/spec/template/metadata"}`},
		},
		{
			name: "by the v1beta1 contract, too", has: older, ours: in("machineTemplate", labels+", 'f:nodeDrainTimeout': {}"), theirs: in("machineTemplate", "'f:spec': {}"),
			object: "{metadata: {}, spec: {machineTemplate: {metadata: {labels: {a: '1'}}, nodeDrainTimeout: 1m30s, spec: {}}}}", result: "{metadata: {}, spec: {machineTemplate: {spec: {}}}}",
			want: []string{`{"op":"remove","path":"/spec/machineTemplate/metadata"}`, `{"op":"remove","path":"/spec/machineTemplate/nodeDrainTimeout"}`},
		},
		{
			name: "the object's own metadata stay, whatever is left of them", ours: "{" + labels + "}", theirs: "{'f:spec': {'f:template': {}}}",
			object: "{metadata: {labels: {a: '1'}}, spec: {template: {}}}", result: "{metadata: {}, spec: {template: {}}}",
			want: []string{`{"op":"remove","path":"/metadata/labels"}`},
		},
		{
			name: "one of two labels goes alone", ours: in("template", labels), theirs: in("template", "'f:metadata': {'f:labels': {'f:z': {}}}"),
			object: "{metadata: {}, spec: {template: {metadata: {labels: {a: '1', z: '1'}}}}}", result: "{metadata: {}, spec: {template: {metadata: {labels: {z: '1'}}}}}",
			want: []string{`{"op":"add","path":"/spec/template/metadata/labels","value":{"z":"1"}}`},
		},
		{
			name: "the last label goes from beside an annotation", ours: in("template", labels), theirs: in("template", "'f:metadata': {'f:annotations': {'f:note': {}}}"),
			object: "{metadata: {}, spec: {template: {metadata: {labels: {a: '1'}, annotations: {note: '1'}}}}}", result: "{metadata: {}, spec: {template: {metadata: {annotations: {note: '1'}}}}}",
			want: []string{`{"op":"remove","path":"/spec/template/metadata/labels"}`},
		},
		{
			name: "the last label goes as the first annotation comes", ours: in("template", labels), theirs: in("template", "'f:spec': {}"), desired: inherits{template: content{annotations: "note=1"}},
			object: "{metadata: {}, spec: {template: {metadata: {labels: {a: '1'}}, spec: {}}}}", result: "{metadata: {}, spec: {template: {metadata: {annotations: {note: '1'}}, spec: {}}}}",
			want: []string{`{"op":"add","path":"/spec/template/metadata/annotations","value":{"note":"1"}}`, `{"op":"remove","path":"/spec/template/metadata/labels"}`},
		},
		{
			name: "deletion and metadata go together", ours: in("template", labels+", 'f:spec': {"+drain+"}"), theirs: in("template", ownsZ),
			object: "{metadata: {}, spec: {template: {metadata: {labels: {a: '1'}}, spec: {deletion: {nodeDrainTimeoutSeconds: 90}, " + z + "}}}}", result: "{metadata: {}, spec: {template: {spec: {" + z + "}}}}",
			want: []string{`{"op":"remove","path":"/spec/template/metadata"}`, `{"op":"remove","path":"/spec/template/spec/deletion"}`},
		},
		{
			name: "so does the deletion of a Machine", ours: "{'f:spec': {'f:deletion': {'f:nodeDrainTimeoutSeconds': {}, 'f:nodeDeletionTimeoutSeconds': {}}}}", theirs: "{'f:spec': {'f:clusterName': {}}}",
			object: "{metadata: {}, spec: {clusterName: c, deletion: {nodeDrainTimeoutSeconds: 90, nodeDeletionTimeoutSeconds: 1}}}", result: "{metadata: {}, spec: {clusterName: c}}",
			want: []string{`{"op":"remove","path":"/spec/deletion"}`},
		},
		{
			name: "a timeout that is not ours stays, and the deletion with it", ours: "{'f:spec': {" + drain + "}}", theirs: "{'f:spec': {'f:deletion': {'f:nodeDeletionTimeoutSeconds': {}}}}",
			object: "{metadata: {}, spec: {deletion: {nodeDrainTimeoutSeconds: 90, nodeDeletionTimeoutSeconds: 1}}}", result: "{metadata: {}, spec: {deletion: {nodeDeletionTimeoutSeconds: 1}}}",
			want: []string{`{"op":"remove","path":"/spec/deletion/nodeDrainTimeoutSeconds"}`},
		},
		{
			name: "a timeout goes as another comes", ours: in("template", "'f:spec': {"+drain+"}"), theirs: in("template", "'f:spec': {}"), desired: inherits{deletion: new(int32(1))},
			object: "{metadata: {}, spec: {template: {spec: {deletion: {nodeDrainTimeoutSeconds: 90}}}}}", result: "{metadata: {}, spec: {template: {spec: {deletion: {nodeDeletionTimeoutSeconds: 1}}}}}",
			want: []string{`{"op":"add","path":"/spec/template/spec/deletion/nodeDeletionTimeoutSeconds","value":1}`, `{"op":"remove","path":"/spec/template/spec/deletion/nodeDrainTimeoutSeconds"}`},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := read(t, tc.object, ours(tc.ours), managed("user", update, tc.theirs))
			content, result := bothWays(t, o, tc.has, tc.desired.object())
			NewWithT(t).Expect(content).To(Equal(tc.want))
			NewWithT(t).Expect(result).To(MatchYAML(tc.result))
		})
	}
	lines := operations(t, planOf(t, machine(content{labels: "a=1"}, ours("{"+labels+"}")), fromOwner(content{}.top())), read(t, "{metadata: {labels: {a: '1'}}}"))
	NewWithT(t).Expect(withoutOwners(lines)).To(Equal([]string{`{"op":"remove","path":"/metadata/labels"}`}), "an object always has metadata")
}
