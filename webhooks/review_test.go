// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	kjson "sigs.k8s.io/json"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/metrics"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// sameAnswer compares the answer to a review with the answer of controller-runtime's handler: the faster decoding of a review does not change
// it. Both answers are given at the same time, which is in the managed fields, and reviews of different lengths at different times.
func sameAnswer(t *testing.T, s server, path string, body []byte) {
	t.Helper()
	handler := failOpen{decider: decidersOf(s.Dependencies)[path], metrics: s.Metrics}
	plain, quick := &admission.Webhook{Handler: handler}, newReviewer(managementRoom, LongestAnswer, s.Metrics.AdmissionRejected(metrics.ManagementServer)).of(handler)
	synctest.Test(t, func(t *testing.T) {
		<-time.After(time.Duration(len(body)) * time.Second)
		NewWithT(t).Expect(post(quick, path, body).Body.String()).To(Equal(post(plain, path, body).Body.String()))
	})
}

// FuzzDecode: every object that an API server can write is decoded as the API server decodes it, into every type.
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
		raw, err := json.Marshal(written) // as an API server writes it: no key is repeated
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

// Of a Node, the webhook decodes only the fields that rules read: a review of 7 MiB must not become much more in memory.
func TestUnreadFieldsOfNodesAreSkipped(t *testing.T) {
	Expect := NewWithT(t).Expect
	node, err := decodeNode(runtime.RawExtension{Raw: []byte(`{
		"metadata": {"name": "n", "labels": {"a": "1"}, "annotations": {"b": "2"}, "managedFields": [{"manager": "m"}]},
		"spec": {"providerID": "p", "taints": [{"key": "t", "effect": "NoSchedule"}]},
		"status": {"addresses": [{"type": "Hostname", "address": "n"}], "images": [{"names": ["i"]}], "conditions": [{"type": "Ready"}],
			"capacity": {"cpu": "1"}, "allocatable": {"cpu": "1"}, "volumesAttached": [{"name": "v"}], "config": {"error": "e"}, "nodeInfo": {"machineID": "m"}}}`)})
	Expect(err).NotTo(HaveOccurred())
	want := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"a": "1"}, Annotations: map[string]string{"b": "2"}}}
	want.Spec = corev1.NodeSpec{ProviderID: "p", Taints: []corev1.Taint{{Key: "t", Effect: corev1.TaintEffectNoSchedule}}}
	want.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "n"}}
	Expect(node).To(Equal(want))
	_, err = decodeNode(runtime.RawExtension{Raw: []byte(`{"status": {"images": [{]}}`)})
	Expect(err).To(HaveOccurred(), "skipped fields must be JSON, too")
}
