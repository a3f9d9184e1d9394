// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	kjson "sigs.k8s.io/json"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// FuzzDecode: whatever an API server can write is read as it would be read there, into every type.
func FuzzDecode(f *testing.F) {
	machine := `{"apiVersion":"cluster.x-k8s.io/v1beta2","kind":"Machine","metadata":{"name":"m","labels":{"a":"1"},"creationTimestamp":"2026-01-01T00:00:00Z",` +
		`"ownerReferences":[{"apiVersion":"v1","kind":"K","name":"n","uid":"u","controller":true}],"managedFields":[{"manager":"heirloom","operation":"Apply",` +
		`"apiVersion":"v1","time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{}}}]},"spec":{"clusterName":"c","providerID":"p",` +
		`"taints":[{"key":"gpu","effect":"NoSchedule","propagation":"Always"}],"minReadySeconds":1,"template":{"metadata":{"annotations":{"b":"2"}},"spec":{}},` +
		`"machineTemplate":{"metadata":{}},"unknown":{"x":[1.5,null]}},"status":{"nodeRef":{"name":"n"},"addresses":[{"type":"Hostname","address":"h"}]}}`
	for _, text := range []string{
		machine, `{}`, `null`, `[]`, `"text"`, `1`, ``, ` `, machine + " ", machine + "{}", machine[:len(machine)/2],
		strings.Replace(machine, `"1"`, `null`, 1), strings.Replace(machine, `"1"`, `1`, 1), strings.Replace(machine, `"1"`, "\"\xff\"", 1),
		strings.Replace(machine, `"1"`, `"\ud800"`, 1), strings.Replace(machine, `{"a":"1"}`, `{"a":"1","a":"2"}`, 1),
		strings.Replace(machine, `"spec"`, `"spec":{"clusterName":"first","taints":[{"key":"x"}]},"spec"`, 1), strings.Replace(machine, `"spec"`, `"Spec"`, 1),
		strings.Replace(machine, `"minReadySeconds":1`, `"minReadySeconds":1.0`, 1), strings.Replace(machine, `"minReadySeconds":1`, `"minReadySeconds":99999999999`, 1),
		strings.Replace(machine, `"2026-01-01T00:00:00Z"`, `null`, 1), strings.Replace(machine, `"2026-01-01T00:00:00Z"`, `"yesterday"`, 1),
		strings.Replace(machine, `[{"key"`, `[null,{"key"`, 1), strings.Replace(machine, `"controller":true`, `"controller":null`, 1),
		strings.Replace(machine, `{"f:metadata":{}}`, `null`, 1), strings.Replace(machine, `{"nodeRef":{"name":"n"}`, `{"nodeRef":null`, 1),
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var written any
		if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &written); err != nil {
			return
		}
		raw, err := json.Marshal(written) // as an API server writes it: no name comes twice
		if err != nil {
			t.Fatal(err)
		}
		alike[clusterv1.Machine](t, raw)
		alike[clusterv1.MachineSet](t, raw)
		alike[clusterv1.MachineDeployment](t, raw)
		alike[clusterv1.MachinePool](t, raw)
		alike[inherit.ControlPlane](t, raw)
		alike[corev1.Node](t, raw)
		alike[metav1.PartialObjectMetadata](t, raw)
		alike[taint.Carrier](t, raw)
	})
}

func alike[T any](t *testing.T, raw []byte) {
	t.Helper()
	want := new(T)
	wantErr := kjson.UnmarshalCaseSensitivePreserveInts(raw, want)
	got := new(T)
	err := decode(runtime.RawExtension{Raw: raw}, got)
	if (err == nil) != (wantErr == nil) {
		t.Fatalf("%T of %q: got %v, want %v", want, raw, err, wantErr)
	}
	if err == nil {
		if diff := cmp.Diff(want, got, cmp.Exporter(func(reflect.Type) bool { return true })); diff != "" {
			t.Fatalf("%T of %q (-want +got):\n%s", want, raw, diff)
		}
	}
}
