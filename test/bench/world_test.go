// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/metrics"
	"github.com/heirloom-dev/heirloom/pkg/owners"
	"github.com/heirloom-dev/heirloom/test/stage"
	"github.com/heirloom-dev/heirloom/webhooks"
)

// world is a MachineSet that declares 15 keys and 2 taints, a Machine of it before and after it has inherited, and the
// Machine's Node. It answers reads as a cache does, without copies, as admission asks for them, and costs nothing else.
type world struct {
	client.Reader // nothing but Get and List is called

	cluster   *clusterv1.Cluster
	ms        *clusterv1.MachineSet
	m         *clusterv1.Machine
	bare      *clusterv1.Machine
	inherited *clusterv1.Machine
	node      *corev1.Node
}

// declared are 15 keys and 2 taints.
func declared() stage.Declared {
	d := stage.Declared{
		Labels: map[string]string{}, Annotations: map[string]string{},
		Taints: stage.Taints(clusterv1.MachineTaintPropagationAlways, "gpu=true:NoSchedule,dedicated=ml:NoExecute"),
	}
	for i := range 10 {
		d.Labels[fmt.Sprintf("node.cluster.x-k8s.io/label-%d", i)] = "value"
	}
	for i := range 5 {
		d.Annotations[fmt.Sprintf("node.cluster.x-k8s.io/annotation-%d", i)] = "value"
	}
	return d
}

func newWorld() *world {
	d := declared()
	cluster := stage.Cluster("default", "bench")
	md := stage.MachineDeployment(cluster, "bench", d)
	ms := stage.MachineSet(md, "bench")
	ms.UID = "the-machineset"
	ms.ResourceVersion = "1"
	ms.Spec.Template.Annotations, ms.Spec.Template.Spec.Taints = d.Annotations, d.Taints
	ms.Spec.Template.Labels = maps.Clone(ms.Spec.Template.Labels) // it was the selector's map, and selected labels are not inherited
	for key, value := range d.Labels {
		ms.Spec.Template.Labels[key] = value
	}
	bare := stage.Machine(ms, "bench")
	bare.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("Machine"))
	inherited := bare.DeepCopy()
	inherited.Labels, inherited.Annotations, inherited.Spec.Taints = ms.Spec.Template.Labels, d.Annotations, d.Taints
	return &world{
		cluster: convert[clusterv1.Cluster](cluster), ms: convert[clusterv1.MachineSet](ms), m: convert[clusterv1.Machine](inherited),
		bare: bare, inherited: inherited, node: sentByKubelet(kubeletsNode("bench")),
	}
}

// Get implements client.Reader.
func (w *world) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	switch object := into.(type) {
	case *clusterv1.Cluster:
		*object = *w.cluster
		return nil
	case *clusterv1.Machine:
		*object = *w.m
		return nil
	case *clusterv1.MachineSet:
		if key.Name == w.ms.Name {
			*object = *w.ms
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

// List implements client.Reader.
func (w *world) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	if list, ok := into.(*clusterv1.MachineList); ok {
		list.Items = []clusterv1.Machine{*w.m}
	}
	return nil
}

// newServer is Heirloom's webhook server with a no-op webhook beside its own.
func newServer(b *testing.B, w *world) http.Handler {
	b.Helper()
	counters, err := metrics.New(prometheus.NewRegistry())
	if err != nil {
		b.Fatal(err)
	}
	server := webhook.NewServer(webhook.Options{})
	webhooks.Register(server, webhooks.Dependencies{
		Chain: &owners.Chain{Cache: w}, ManagementCluster: client.ObjectKeyFromObject(w.cluster), Metrics: counters,
		Policy: func() inherit.Policy { return inherit.Policy{ClusterAPITaints: inherit.PropagationEnabled} },
	})
	server.Register(noOpPath, &admission.Webhook{
		Handler: admission.HandlerFunc(func(context.Context, admission.Request) admission.Response { return admission.Allowed("") }),
	})
	return server.WebhookMux()
}

func measure(server http.Handler, path string, body []byte) time.Duration {
	request := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	start := time.Now()
	server.ServeHTTP(httptest.NewRecorder(), request)
	return time.Since(start)
}

// expectAllowed keeps the benchmark from measuring an error.
func expectAllowed(b *testing.B, server http.Handler, path string, body []byte) {
	b.Helper()
	request := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	recorder := httptest.NewRecorder()
	server.ServeHTTP(recorder, request)
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(recorder.Body.Bytes(), &review); err != nil {
		b.Fatal(err)
	}
	if !review.Response.Allowed || len(review.Response.Warnings) > 0 {
		b.Fatalf("unexpected answer: %s", recorder.Body)
	}
}

func encode(object any) []byte {
	encoded, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	return encoded
}

func convert[T any](object any) *T {
	into := new(T)
	if err := json.Unmarshal(encode(object), into); err != nil {
		panic(err)
	}
	return into
}

func convertRaw[T any](encoded []byte) *T {
	into := new(T)
	if err := json.Unmarshal(encoded, into); err != nil {
		panic(err)
	}
	return into
}
