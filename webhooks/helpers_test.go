// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/metrics"
	"github.com/heirloom-dev/heirloom/pkg/owners"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// fleet is a reader of the objects that it holds, by "<namespace>/<name>". A list returns all of them, whatever the options are: the rules
// find the matches.
type fleet struct {
	classes     map[string]string
	clusters    map[string]string
	deployments map[string]string
	sets        map[string]string
	machines    map[string]string
	err         error
}

func (f fleet) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if f.err != nil {
		return f.err
	}
	var from map[string]string
	switch into.(type) {
	case *clusterv1.ClusterClass:
		from = f.classes
	case *clusterv1.Cluster:
		from = f.clusters
	case *clusterv1.MachineDeployment:
		from = f.deployments
	case *clusterv1.MachineSet:
		from = f.sets
	case *clusterv1.Machine:
		from = f.machines
	}
	document, ok := from[key.String()]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{}, key.String())
	}
	return f.read(key.String(), document, into)
}

func (f fleet) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	list, ok := into.(*clusterv1.MachineList)
	if f.err != nil || !ok {
		return f.err
	}
	for name, document := range f.machines {
		m := clusterv1.Machine{}
		if err := f.read(name, document, &m); err != nil {
			return err
		}
		list.Items = append(list.Items, m)
	}
	return nil
}

// read fills an object from YAML. Its UID is its name, so that owner references are easy to write.
func (f fleet) read(name, document string, into client.Object) error {
	unmarshal := func() error { return yaml.Unmarshal([]byte(document), into) }
	if json.Valid([]byte(document)) {
		unmarshal = func() error { return json.Unmarshal([]byte(document), into) }
	}
	if err := unmarshal(); err != nil {
		return fmt.Errorf("bad fixture %s: %w", name, err)
	}
	namespace, short, _ := strings.Cut(name, "/")
	into.SetNamespace(namespace)
	into.SetName(short)
	into.SetUID(types.UID(short))
	into.SetResourceVersion(strconv.FormatUint(uint64(crc32.ChecksumIEEE([]byte(document))), 10))
	return nil
}

// server holds the handlers of all kinds over one fleet.
type server struct {
	Dependencies
	registry *prometheus.Registry
}

func newServer(t testing.TB, cache, live client.Reader, policy inherit.Policy) server {
	t.Helper()
	registry := prometheus.NewRegistry()
	counters, err := metrics.New(registry)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return server{registry: registry, Dependencies: Dependencies{
		Chain:             &owners.Chain{Cache: newUnchanging(t, cache), Live: live, Freshness: owners.FromCacheElseLive, Layout: newer.ControlPlane},
		Metrics:           counters,
		ManagementCluster: types.NamespacedName{Namespace: "ns", Name: "c"},
		Policy:            func() inherit.Policy { return policy },
	}}
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

// unchanging is a cache as an owners.Chain reads it: every Get of an object returns the same maps and lists. They must be unchanged at the
// end of the test: a change of a read object would change the cache.
type unchanging struct {
	client.Reader

	mu   sync.Mutex
	read map[string]sharedObject
}

// sharedObject holds an object that all readers share, and a private copy.
type sharedObject struct{ shared, before client.Object }

// newUnchanging returns a cache in front of a reader. A single cleanup compares the shared objects, because a fuzz target may not add
// cleanups.
func newUnchanging(t testing.TB, of client.Reader) *unchanging {
	t.Helper()
	u := &unchanging{Reader: of, read: map[string]sharedObject{}}
	t.Cleanup(func() {
		for id, object := range u.read {
			NewWithT(t).Expect(object.shared).To(Equal(object.before), "%s has been changed", id)
		}
	})
	return u
}

// Get implements client.Reader.
func (u *unchanging) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	id := fmt.Sprintf("%T %s", into, key)
	u.mu.Lock()
	defer u.mu.Unlock()
	object, ok := u.read[id]
	if !ok {
		if err := u.Reader.Get(ctx, key, into, options...); err != nil {
			return err
		}
		object = sharedObject{shared: copyOf(into), before: copyOf(into)}
		u.read[id] = object
	}
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(object.shared).Elem())
	return nil
}

func copyOf(object client.Object) client.Object {
	return object.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy is of the same type
}
