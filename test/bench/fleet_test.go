// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/owners"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// fleet is a Cluster with a MachineDeployment, its MachineSet and Machines, as an API server stores them. Its Nodes are the
// management cluster's own.
type fleet struct {
	cluster  *clusterv1.Cluster
	md       *clusterv1.MachineDeployment
	ms       *clusterv1.MachineSet
	machines []*clusterv1.Machine
}

// newFleet returns Machines that have not inherited anything yet.
func newFleet(size int) *fleet {
	d := declared()
	f := &fleet{cluster: stage.Cluster("default", "bench")}
	stored(f.cluster)
	f.md = stage.MachineDeployment(f.cluster, "bench", d)
	stored(f.md)
	f.ms = stage.MachineSet(f.md, "bench")
	f.ms.Spec.Template.Annotations, f.ms.Spec.Template.Spec.Taints = d.Annotations, d.Taints
	f.ms.Spec.Template.Labels = maps.Clone(f.md.Spec.Template.Labels)
	stored(f.ms)
	for i := range size {
		m := stage.Machine(f.ms, fmt.Sprintf("bench-%d", i))
		m.Status.NodeRef.Name = m.Name
		m.Status.Conditions = conditions()
		stored(m)
		f.machines = append(f.machines, m)
	}
	return f
}

// stored gives an object what API servers and controllers add.
func stored(object client.Object) {
	object.SetUID(types.UID("the-uid-of-" + object.GetName()))
	object.SetResourceVersion("1000000")
	object.SetCreationTimestamp(metav1.Now())
	var fields strings.Builder
	for i := range 40 {
		fmt.Fprintf(&fields, `"f:a-field-of-the-usual-length-%d":{".":{},"k:{\"type\":\"Ready\"}":{}},`, i)
	}
	object.SetManagedFields([]metav1.ManagedFieldsEntry{{
		Manager: "manager", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: clusterv1.GroupVersion.String(), Time: new(metav1.Now()),
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{` + fields.String() + `"f:last":{}}`),
	}})
}

func conditions() []metav1.Condition {
	var all []metav1.Condition
	for i := range 8 {
		all = append(all, metav1.Condition{
			Type: fmt.Sprintf("Condition%d", i), Status: metav1.ConditionTrue, Reason: "AsItShouldBe", LastTransitionTime: metav1.Now(),
			Message: "A message of a usual length about what is so, and since when, and what would have to change.",
		})
	}
	return all
}

// byPath returns the objects by their paths in the API.
func (f *fleet) byPath() map[string][]byte {
	all := map[string][]byte{}
	add := func(kind, resource string, object client.Object) {
		object.GetObjectKind().SetGroupVersionKind(clusterv1.GroupVersion.WithKind(kind))
		all["/apis/"+clusterv1.GroupVersion.String()+"/namespaces/default/"+resource+"/"+object.GetName()] = encode(object)
	}
	add("Cluster", "clusters", f.cluster)
	add("MachineDeployment", "machinedeployments", f.md)
	add("MachineSet", "machinesets", f.ms)
	for _, m := range f.machines {
		add("Machine", "machines", m)
	}
	return all
}

// cacheOf answers as the informer caches do, without copies.
type cacheOf struct {
	client.Reader // nothing but Get and List is called
	objects       map[string]client.Object
	machines      map[string][]*clusterv1.Machine // by any value of an index
}

func (f *fleet) cache() cacheOf {
	c := cacheOf{objects: map[string]client.Object{}, machines: map[string][]*clusterv1.Machine{}}
	above := []client.Object{convert[clusterv1.Cluster](f.cluster), convert[clusterv1.MachineDeployment](f.md), convert[clusterv1.MachineSet](f.ms)}
	for _, object := range above {
		c.objects[fmt.Sprintf("%T %s", object, object.GetName())] = object
	}
	for _, machine := range f.machines {
		m := convert[clusterv1.Machine](machine)
		c.objects[fmt.Sprintf("%T %s", m, m.Name)] = m
		values := slices.Concat(owners.IndexValues(m, "nodeRef"), owners.IndexValues(m, "providerID"), owners.IndexValues(m, "nodeName"))
		slices.Sort(values)
		for _, value := range slices.Compact(values) {
			c.machines[value] = append(c.machines[value], m)
		}
	}
	for _, object := range c.objects {
		object.SetManagedFields(nil)
	}
	return c
}

// Get implements client.Reader.
func (c cacheOf) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	object, ok := c.objects[fmt.Sprintf("%T %s", into, key.Name)]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(object).Elem())
	return nil
}

// List implements client.Reader.
func (c cacheOf) List(_ context.Context, into client.ObjectList, options ...client.ListOption) error {
	list, ok := into.(*clusterv1.MachineList)
	if !ok {
		return nil
	}
	for _, requirement := range (&client.ListOptions{}).ApplyOptions(options).FieldSelector.Requirements() {
		for _, m := range c.machines[requirement.Value] {
			list.Items = append(list.Items, *m)
		}
	}
	return nil
}

// sizeOfServed is the environment variable that makes this program an API server for a fleet of that size.
const sizeOfServed = "BENCH_FLEET_SIZE"

// TestServeFleet is an API server in a process of its own, so that what it costs does not count. It answers as late as one that asks
// its etcd. Without the environment variable, there is nothing to test.
func TestServeFleet(t *testing.T) {
	var size int
	if _, err := fmt.Sscan(os.Getenv(sizeOfServed), &size); err != nil {
		t.Skip("for the benchmarks")
	}
	objects := newFleet(size).byPath()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		<-time.After(time.Millisecond)
		w.Header().Set("Content-Type", "application/json")
		if _, err := w.Write(objects[req.URL.Path]); err != nil {
			t.Error(err)
		}
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	fmt.Println("serving", server.URL)
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil { // until the benchmark ends
		t.Error(err)
	}
}

// liveReader starts an API server for a fleet of that size and returns a client of it, as the webhooks have one.
func liveReader(b *testing.B, size int) client.Reader {
	b.Helper()
	command := exec.CommandContext(b.Context(), os.Args[0], "-test.run=^TestServeFleet$", "-test.v")
	command.Env, command.Stderr = append(os.Environ(), fmt.Sprintf("%s=%d", sizeOfServed, size)), os.Stderr
	stdin, err := command.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	stdout, err := command.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := command.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := stdin.Close(); err != nil {
			b.Error(err)
		}
		_ = command.Wait() // killed with the context, if it has not ended before
	})
	lines, url := bufio.NewScanner(stdout), ""
	for url == "" && lines.Scan() {
		url, _ = strings.CutPrefix(lines.Text(), "serving ")
		if !strings.HasPrefix(url, "https") {
			url = ""
		}
	}
	return newClient(b, url)
}

func newClient(b *testing.B, url string) client.Reader {
	b.Helper()
	scheme := runtime.NewScheme()
	utilruntime.Must(clusterv1.AddToScheme(scheme))
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []string{"Cluster", "ClusterClass", "MachineDeployment", "MachineSet", "Machine", "MachinePool"} {
		mapper.Add(clusterv1.GroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	config := &rest.Config{Host: url, QPS: -1, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	reader, err := client.New(config, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		b.Fatal(err)
	}
	return reader
}

// nodeOf returns the Node of a Machine, before it has inherited.
func nodeOf(m *clusterv1.Machine) *corev1.Node {
	node := kubeletsNode(m.Name)
	stored(node)
	return node
}
