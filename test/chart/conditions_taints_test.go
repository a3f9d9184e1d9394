// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// API servers call the validating webhook only if the request changes taints, and only if these taints may be invalid.
func TestTaintsAreJudgedWhereSomethingMayBeWrong(t *testing.T) {
	asked := conditionsOf(t, "taints.heirloom.dev")
	machine := func(metadata, spec string) *unstructured.Unstructured {
		return read(t, fmt.Sprintf(`{"apiVersion":"cluster.x-k8s.io/v1beta2","kind":"Machine","metadata":{"name":"m","namespace":"n"%s},"spec":{%s}}`, metadata, spec))
	}
	annotated := func(kind, value string) *unstructured.Unstructured {
		return machine(fmt.Sprintf(`,"annotations":{"taints.heirloom.dev/%s":%q}`, kind, value), "")
	}
	const gpu = `{"key":"example.com/gpu","value":"true","effect":"NoSchedule","propagation":"Always"}`
	const reserved = `"taints.heirloom.dev/always":"node.kubernetes.io/x:NoSchedule"`
	const gates = "net=a:NoSchedule until condition example.com/Net=False, cni:NoExecute until daemonset kube-system/cni"
	for _, tc := range []struct {
		name        string
		old, object *unstructured.Unstructured
		want        bool
	}{
		// TestConditionsLetNoWrongTaintPass covers wrong taints.
		{"a Machine without taints", nil, machine("", ""), false},
		{"an ordinary taint", nil, machine("", `"taints":[`+gpu+`]`), false},
		{"an ordinary annotation", nil, annotated("always", "gpu=true:NoSchedule,example.com/team:NoExecute"), false},
		{"start-up gates", nil, annotated("until", gates), false},
		{"a reserved taint that stays", machine(`,"annotations":{`+reserved+`}`, ""),
			machine(`,"annotations":{`+reserved+`,"other":"1"}`, `"providerID":"a"`), false},
		{"a reserved taint that comes", machine("", ""), machine(`,"annotations":{`+reserved+`}`, ""), true},
		{"a gate that stays broken", annotated("until", "net"), annotated("until", "net"), false},
		{"a huge list", nil, annotated("always", strings.Repeat("gpu:NoSchedule,", 20000)), true},
		{"something else than a list", nil, machine("", `"taints":"none"`), true},
		{"something else than taints", nil, machine("", `"taints":[1]`), true},
		{"keys for Nodes, which only a Cluster can name", nil, machine(`,"annotations":{"sync.heirloom.dev/labels":"team"}`, ""), true},
		{"a label in Heirloom's domain", nil, machine(`,"labels":{"heirloom.node-restriction.kubernetes.io/x":""}`, ""), true},
		{"an unknown key", nil, machine(`,"annotations":{"taints.heirloom.dev/initialise":"a:NoSchedule"}`, ""), true},
		{"an unknown key that stays", machine(`,"annotations":{"heirloom.dev/x":""}`, ""), machine(`,"annotations":{"heirloom.dev/x":"","other":"1"}`, ""), false},
		{"the opt-out label", nil, machine(`,"labels":{"heirloom.dev/ignore":""}`, ""), false},
		{"a label of Clusters", nil, machine(`,"labels":{"heirloom.dev/mode":"observe"}`, ""), true},
		{"a label in another domain", nil, machine(`,"labels":{"node-restriction.kubernetes.io/x":""}`, ""), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			NewWithT(t).Expect(asked.match(t, tc.old, tc.object)).To(Equal(tc.want))
		})
	}
}

// API servers call the validating webhook for Clusters and ClusterClasses if they change a topology, a class or one of Heirloom's own keys.
func TestClustersAreJudgedWhereSomethingMayBeWrong(t *testing.T) {
	asked := conditionsOf(t, "topology.taints.heirloom.dev")
	cluster := func(metadata string) *unstructured.Unstructured {
		return read(t, `{"apiVersion":"cluster.x-k8s.io/v1beta2","kind":"Cluster","metadata":{"name":"c"`+metadata+`},"spec":{}}`)
	}
	const mode = `,"labels":{"heirloom.dev/mode":"enforced"}`
	for _, tc := range []struct {
		old, object *unstructured.Unstructured
		want        bool
	}{
		{nil, cluster(`,"labels":{"team":"a"}`), false},
		{nil, cluster(mode), true},
		{cluster(""), cluster(mode), true},
		{cluster(mode), cluster(mode + `,"annotations":{"a":"b"}`), false},
		{cluster(""), cluster(`,"annotations":{"sync.heirloom.dev/label":"b"}`), true},
	} {
		NewWithT(t).Expect(asked.match(t, tc.old, tc.object)).To(Equal(tc.want), "%v", tc.object)
	}
}

// Taints that the conditions skip are valid: the conditions and the webhook never disagree.
func TestConditionsLetNoWrongTaintPass(t *testing.T) {
	asked := conditionsOf(t, "taints.heirloom.dev")
	for seed := range uint64(5) {
		r := rand.New(rand.NewPCG(seed, 1))
		passed := 0
		for range 400 {
			var old *unstructured.Unstructured
			kind := pick(r, "Machine", "MachineSet", "AcmeControlPlane", "AcmeControlPlaneTemplate")
			if r.IntN(2) == 0 {
				old = carrier(t, r, kind)
			}
			object := carrier(t, r, kind)
			if asked.match(t, old, object) {
				continue
			}
			passed++
			if errs := taint.ValidateCarrier(decoded(t, object), decoded(t, old), object.GroupVersionKind().Group == inherit.ControlPlaneGroup); len(errs) > 0 {
				t.Fatalf("nobody is asked about %v, after %v: %v", object, old, errs)
			}
		}
		NewWithT(t).Expect(passed).To(BeNumerically(">", 20), "the conditions keep nothing away")
	}
}

func decoded(t *testing.T, object *unstructured.Unstructured) *taint.Carrier {
	t.Helper()
	if object == nil {
		return nil
	}
	raw, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	c := &taint.Carrier{}
	if err := json.Unmarshal(raw, c); err != nil {
		t.Fatal(err)
	}
	return c
}

func pick[T any](r *rand.Rand, all ...T) T { return all[r.IntN(len(all))] }

// carrier returns an object with taints at some of the places that its kind has.
func carrier(t *testing.T, r *rand.Rand, kind string) *unstructured.Unstructured {
	t.Helper()
	group := map[bool]string{true: inherit.ControlPlaneGroup, false: "cluster.x-k8s.io"}[strings.HasPrefix(kind, "Acme")]
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": group + "/v1beta2", "kind": kind}}
	object.SetName("x")
	typed := map[string][][]string{
		"Machine": {{"spec"}}, "MachineSet": {{"spec", "template", "spec"}},
		"AcmeControlPlane":         {{"spec", "machineTemplate"}, {"spec", "machineTemplate", "spec"}},
		"AcmeControlPlaneTemplate": {{"spec", "template", "spec", "machineTemplate"}, {"spec", "template", "spec", "machineTemplate", "spec"}},
	}
	annotated := map[string][][]string{
		"MachineSet": {{"spec", "template"}}, "AcmeControlPlane": {{"spec", "machineTemplate"}},
		"AcmeControlPlaneTemplate": {{"spec", "template"}, {"spec", "template", "spec", "machineTemplate"}},
	}
	set := func(value any, path ...string) {
		if err := unstructured.SetNestedField(object.Object, value, path...); err != nil {
			t.Fatal(err)
		}
	}
	for _, place := range typed[kind] {
		if r.IntN(2) == 0 {
			set(typedTaints(r), append(place, "taints")...)
		}
	}
	for _, place := range append(annotated[kind], nil) {
		if r.IntN(3) == 0 {
			annotation := pick(r, taint.Annotations...)
			set(annotatedTaints(r, annotation == taint.UntilAnnotation), append(place, "metadata", "annotations", annotation)...)
		}
	}
	if r.IntN(4) == 0 {
		set("", "metadata", "labels", "cluster.x-k8s.io/control-plane")
	}
	return object
}

func typedTaints(r *rand.Rand) []any {
	taints := []any{}
	for range r.IntN(4) {
		taints = append(taints, map[string]any{"key": key(r), "value": value(r), "effect": effect(r), "propagation": pick(r, "Always", "Always", "OnInitialization", "Sometimes")})
	}
	return taints
}

func annotatedTaints(r *rand.Rand, gates bool) string {
	var entries []string
	for range r.IntN(4) {
		entries = append(entries, pick(r, key(r), key(r)+"="+value(r))+pick(r, ":", ":", ":", "=", "")+effect(r)+pick(r, "", "", "", " ", ":"))
		if gates {
			entries[len(entries)-1] += pick(r, " until ", " until ", " until ", "  until ", " ") + opens(r)
		}
	}
	return strings.Join(entries, pick(r, ",", ",", ", ", ",,"))
}

// Most keys are valid: otherwise hardly any object would have only valid taints.
func key(r *rand.Rand) string {
	if r.IntN(4) > 0 {
		return pick(r, "gpu", "example.com/gpu", "a.b-c.example.com/Team_1", "x")
	}
	return pick(r, "node.kubernetes.io/x", "node.kubernetes.io/out-of-service", "node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master",
		"node.cluster.x-k8s.io/uninitialized", "node.cluster.x-k8s.io/outdated-revision", "node.cloudprovider.kubernetes.io/y", "", "a..b/c", "A.example.com/x", "-x", "x-",
		"a/b/c", "/x", "x/", "ü", strings.Repeat("k", 64), strings.Repeat("p", 63)+".example.com/k", strings.Repeat("long.", 60)+"example.com/k", "x y", "x\n")
}

func opens(r *rand.Rand) string {
	if r.IntN(4) > 0 {
		return pick(r, "condition Net=False", "condition example.com/Net=Unknown", "daemonset kube-system/cni", "daemonset a/b.c")
	}
	return pick(r, "condition ", "condition Net", "condition Net=false", "condition "+key(r)+"=True", "daemonset cni", "daemonset a.b/c", "daemonset a/"+key(r),
		"condition Net=True and condition Net=False", "condition Net=True within 1d", "allocatable cpu", "csinode a_b", "daemonset A/b", "daemonset a/b/c", "daemonset "+strings.Repeat("n", 64)+"/a", "deployment a/b", "condition Net=True ", "condition Net=True\n")
}

func value(r *rand.Rand) string {
	if r.IntN(4) > 0 {
		return pick(r, "", "true", "a.b_c-D")
	}
	return pick(r, "-", strings.Repeat("v", 64), "a=b", "a b", "ü", "a\n")
}

func effect(r *rand.Rand) string {
	if r.IntN(8) > 0 {
		return pick(r, "NoSchedule", "PreferNoSchedule", "NoExecute")
	}
	return pick(r, "", "noschedule", "Never")
}
