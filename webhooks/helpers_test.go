// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/metrics"
	"github.com/heirloom-dev/heirloom/pkg/owners"
	"github.com/heirloom-dev/heirloom/test/sim/fakeclient"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// fleet holds objects in YAML, by "<namespace>/<name>".
type fleet struct {
	classes, clusters, deployments, sets, machines map[string]string
	// asked is called before each read, "<namespace>/<name>" or "list". An error is the answer.
	asked func(ctx context.Context, what string) error
}

// with returns a changed copy of the fleet.
func (f fleet) with(change func(*fleet)) fleet {
	change(&f)
	return f
}

// silent is an API server that does not answer.
var silent = fleet{asked: func(ctx context.Context, _ string) error {
	<-ctx.Done()
	return ctx.Err()
}}

// broken is an API server, or a cache, that answers with errors.
var broken = fleet{asked: func(context.Context, string) error { return errors.New("timeout") }}

// reader returns a reader of the fleet. The test fails if an object in its answers is changed.
func (f fleet) reader(t testing.TB) client.Reader {
	t.Helper()
	var objects []client.Object
	add := func(object client.Object, documents map[string]string) {
		for name, document := range documents {
			object = object.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy is of the same type
			reflect.ValueOf(object).Elem().SetZero()
			NewWithT(t).Expect(yaml.Unmarshal([]byte(document), object)).To(Succeed(), name)
			namespace, name, _ := strings.Cut(name, "/")
			object.SetNamespace(namespace)
			object.SetName(name)
			object.SetUID(types.UID(name)) // so that owner references are easy to write
			objects = append(objects, object)
		}
	}
	add(&clusterv1.ClusterClass{}, f.classes)
	add(&clusterv1.Cluster{}, f.clusters)
	add(&clusterv1.MachineDeployment{}, f.deployments)
	add(&clusterv1.MachineSet{}, f.sets)
	add(&clusterv1.Machine{}, f.machines)
	ask := func(ctx context.Context, what string) error {
		if f.asked == nil {
			return nil
		}
		return f.asked(ctx, what)
	}
	return interceptor.NewClient(fakeclient.Cache(t, fakeclient.New(objects...)), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
			return cmp.Or(ask(ctx, key.String()), c.Get(ctx, key, into, options...))
		},
		List: func(ctx context.Context, c client.WithWatch, into client.ObjectList, options ...client.ListOption) error {
			return cmp.Or(ask(ctx, "list"), c.List(ctx, into, options...))
		},
	})
}

// server holds the handlers of all kinds over one fleet.
type server struct {
	Dependencies
	registry *prometheus.Registry
}

func newServer(t testing.TB, cache fleet, live client.Reader, policy inherit.Policy) server {
	t.Helper()
	registry := prometheus.NewRegistry()
	counters, err := metrics.New(registry)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return server{registry: registry, Dependencies: Dependencies{
		Chain:             &owners.Chain{Cache: cache.reader(t), Live: live, Freshness: owners.FromCacheElseLive, Layout: layout},
		Metrics:           counters,
		ManagementCluster: types.NamespacedName{Namespace: "ns", Name: "c"},
		Policy:            func() inherit.Policy { return policy },
	}}
}

// layout says that control planes have all fields of the contract.
func layout(_ context.Context, gvk schema.GroupVersionKind) (inherit.Layout, error) {
	return inherit.ControlPlaneLayout(gvk.Version, func(...string) bool { return true }), nil
}

// asks sends a request to the handler of the kind.
func (s server) asks(t *testing.T, req admission.Request) admission.Response {
	t.Helper()
	return failOpen{decider: deciders(s.Dependencies)[strings.TrimPrefix(req.Kind.Kind, "Acme")], metrics: s.Metrics}.Handle(t.Context(), req)
}

// counted returns the counted requests, as "<kind> <operation> <outcome>".
func (s server) counted(t *testing.T) []string {
	t.Helper()
	return s.countedIn(t, "heirloom_admission_requests_total")
}

// countedIn returns the samples of a metric: the values of its labels, in the order of the labels' names.
func (s server) countedIn(t *testing.T, name string) []string {
	t.Helper()
	families, err := s.registry.Gather()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	var counts []string
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.GetMetric() {
			var labels []string
			for _, label := range metric.GetLabel() {
				labels = append(labels, label.GetValue())
			}
			for range int(metric.GetCounter().GetValue()) {
				counts = append(counts, strings.Join(labels, " "))
			}
		}
	}
	slices.Sort(counts)
	return counts
}

// write is an admission request in short form. Objects are YAML. With old, it is an update.
type write struct {
	kind, object, old string
	// user is an administrator if it is empty. A kubelet is "system:node:<name>".
	user   string
	dryRun bool
}

func (w write) request(t testing.TB) admission.Request {
	t.Helper()
	group, version := "cluster.x-k8s.io", "v1beta2"
	if w.kind == "Node" {
		group, version = "", "v1"
	}
	if strings.HasSuffix(w.kind, "ControlPlane") {
		group = "controlplane.cluster.x-k8s.io"
	}
	if w.kind == "InfraMachine" {
		group = "infrastructure.cluster.x-k8s.io"
	}
	req := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		UID: "uid", Operation: admissionv1.Create, Namespace: "ns", Name: "x",
		Kind:     metav1.GroupVersionKind{Group: group, Version: version, Kind: w.kind},
		Object:   raw(t, w.object),
		DryRun:   &w.dryRun,
		UserInfo: authenticationv1.UserInfo{Username: "admin", Groups: []string{"system:authenticated"}},
	}}
	if strings.HasPrefix(w.object, "{apiVersion: cluster.x-k8s.io/v1beta1,") {
		req.Kind.Version = "v1beta1"
	}
	if w.kind == "Node" {
		req.Namespace, req.Resource = "", metav1.GroupVersionResource{Version: "v1", Resource: "nodes"}
	}
	if w.old != "" {
		req.Operation, req.OldObject = admissionv1.Update, raw(t, w.old)
	}
	if w.user != "" {
		req.UserInfo = authenticationv1.UserInfo{Username: w.user, Groups: []string{"system:nodes", "system:authenticated"}}
	}
	return req
}

// raw turns YAML into the JSON of an API server; other text is sent unchanged.
func raw(t testing.TB, document string) runtime.RawExtension {
	t.Helper()
	if json.Valid([]byte(document)) { // to parse megabytes as YAML takes longer than to answer them
		return runtime.RawExtension{Raw: []byte(document)}
	}
	if converted, err := yaml.YAMLToJSON([]byte(document)); err == nil {
		return runtime.RawExtension{Raw: converted}
	}
	return runtime.RawExtension{Raw: []byte(document)}
}

// patch returns the operations of a response that are not about managed fields, one in a line.
func patch(t *testing.T, response admission.Response) []string {
	t.Helper()
	var lines []string
	for i := range response.Patches {
		if strings.HasPrefix(response.Patches[i].Path, "/metadata/managedFields") {
			continue
		}
		line, err := json.Marshal(&response.Patches[i])
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		lines = append(lines, string(line))
	}
	return lines
}
