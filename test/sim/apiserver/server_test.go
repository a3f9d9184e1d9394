// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/net"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/test/sim/apiserver"
)

var clusterAPI = sync.OnceValue(func() []*apiextensionsv1.CustomResourceDefinition {
	module, err := exec.CommandContext(context.Background(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/cluster-api").Output()
	if err != nil {
		panic(err)
	}
	var crds []*apiextensionsv1.CustomResourceDefinition
	for _, name := range []string{"clusters", "machines"} {
		text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(module)), "core/config/crd/bases/cluster.x-k8s.io_"+name+".yaml"))
		if err != nil {
			panic(err)
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(text, crd); err != nil {
			panic(err)
		}
		crds = append(crds, crd)
	}
	return crds
})

func newServer(t *testing.T, options apiserver.Options) *apiserver.Server {
	t.Helper()
	options.Name, options.CRDs = "management", clusterAPI()
	s, err := apiserver.New(options)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return s
}

func testScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	_ = clientgoscheme.AddToScheme(s)
	_ = clusterv1.AddToScheme(s)
	return s
}

func newClient(t *testing.T, s *apiserver.Server, user string, groups ...string) client.Client {
	t.Helper()
	c, err := client.New(s.Client(user, groups...), client.Options{Scheme: testScheme(), Mapper: s.Mapper()})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return c
}

func machine(name string) *clusterv1.Machine {
	return &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: clusterv1.MachineSpec{
			ClusterName:       "c",
			Bootstrap:         clusterv1.Bootstrap{DataSecretName: ptr.To("data")},
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "FakeMachine", Name: name},
		},
	}
}

// run runs a manager that annotates each Machine by apply, while the watches are cut. It returns all writes, without their times: a
// client reconnects a cut watch after a random delay.
func run(t *testing.T) []string {
	var writes []string
	synctest.Test(t, func(t *testing.T) {
		Expect := NewWithT(t).Expect
		s := newServer(t, apiserver.Options{Stored: func(w apiserver.Write) {
			of := w.After
			if of == nil {
				of = w.Before
			}
			writes = append(writes, fmt.Sprintln(w.User, w.Verb, w.GVR.Resource, of.GetName(), of.GetResourceVersion(), of.GetUID()))
		}})
		mgr, err := ctrl.NewManager(s.Client("controller"), ctrl.Options{
			Scheme: testScheme(), Metrics: metricsserver.Options{BindAddress: "0"}, Logger: logr.Discard(),
			MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return s.Mapper(), nil },
			Controller:     ctrlconfig.Controller{SkipNameValidation: ptr.To(true)},
		})
		Expect(err).NotTo(HaveOccurred())
		err = ctrl.NewControllerManagedBy(mgr).For(&clusterv1.Machine{}).Complete(reconcile.Func(func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
			u := &unstructured.Unstructured{}
			u.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("Machine"))
			u.SetNamespace(r.Namespace)
			u.SetName(r.Name)
			u.SetAnnotations(map[string]string{"seen": "yes"})
			return reconcile.Result{}, mgr.GetClient().Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("test"), client.ForceOwnership)
		}))
		Expect(err).NotTo(HaveOccurred())
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- mgr.Start(ctx) }()
		c := newClient(t, s, "admin")
		<-time.After(time.Minute) // of virtual time
		before := slices.Clone(writes)
		for i := range 5 {
			Expect(c.Create(ctx, machine(fmt.Sprint("m", i)))).To(Succeed())
			synctest.Wait()
			Expect(writes).To(HaveLen(len(before)+2*(i+1)), "no event has been late")
			s.CutWatches()
			<-time.After(time.Minute) // of virtual time
			if i == 3 {
				s.Expire()
			}
		}
		<-time.After(10 * time.Minute) // of virtual time
		machines := &clusterv1.MachineList{}
		Expect(c.List(ctx, machines)).To(Succeed())
		Expect(machines.Items).To(HaveLen(5))
		for _, m := range machines.Items {
			Expect(m.Annotations).To(HaveKeyWithValue("seen", "yes"), m.Name)
		}
		cancel()
		Expect(<-ended).To(Succeed())
	})
	return writes
}

func TestManagerIsDeterministic(t *testing.T) {
	first := run(t)
	NewWithT(t).Expect(run(t)).To(Equal(first))
}

func TestNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Expect := NewWithT(t).Expect
		s := newServer(t, apiserver.Options{})
		c := newClient(t, s, "system:node:n", "system:nodes")
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
		Expect(c.Create(t.Context(), node)).To(Succeed())
		Expect(node.Spec.Taints).To(HaveLen(1))
		node.Spec.Taints = nil
		Expect(c.Update(t.Context(), node)).To(MatchError(ContainSubstring("is not allowed to modify taints")))
		Expect(c.Delete(t.Context(), node)).To(MatchError(ContainSubstring("cannot delete resource")))
	})
}

// A test may answer a request, break the connection before or after a write, or end a watch.
func TestTurns(t *testing.T) {
	for _, c := range []struct {
		name, phase string
		err         error
		seen        func(error) bool
		stored      bool
	}{
		{name: "served", stored: true, seen: func(err error) bool { return err == nil }},
		{name: "throttled", phase: "request", err: apierrors.NewTooManyRequests("slowly", 0), seen: apierrors.IsTooManyRequests},
		{name: "broken before", phase: "request", err: errors.New("broken"), seen: net.IsConnectionReset},
		{name: "broken before the write", phase: "store", err: errors.New("broken"), seen: net.IsConnectionReset},
		{name: "refused", phase: "store", err: apierrors.NewInternalError(errors.New("etcd is away")), seen: apierrors.IsInternalError},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				Expect := NewWithT(t).Expect
				var steps []apiserver.Step
				s := newServer(t, apiserver.Options{Turn: func(_ context.Context, step apiserver.Step) error {
					if steps = append(steps, step); step.Phase == c.phase {
						return c.err
					}
					return nil
				}})
				err := newClient(t, s, "admin").Create(t.Context(), machine("m"))
				Expect(c.seen(err)).To(BeTrue(), "%v after %v", err, steps)
				Expect(s.Objects(clusterv1.GroupVersion.WithResource("machines"))).To(HaveLen(map[bool]int{true: 1}[c.stored]))
			})
		})
	}
}

// After a concurrent write, a patch is computed again, and an update is refused.
func TestWriteInBetween(t *testing.T) {
	for _, c := range []struct {
		name    string
		write   func(context.Context, client.Client, *clusterv1.Machine) error
		refused bool
	}{
		{name: "patch", write: func(ctx context.Context, cl client.Client, m *clusterv1.Machine) error {
			return cl.Patch(ctx, m, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"mine":"yes"}}}`)))
		}},
		{name: "update", refused: true, write: func(ctx context.Context, cl client.Client, m *clusterv1.Machine) error {
			m.Annotations = map[string]string{"mine": "yes"}
			return cl.Update(ctx, m)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				Expect := NewWithT(t).Expect
				var between func()
				s := newServer(t, apiserver.Options{Turn: func(_ context.Context, step apiserver.Step) error {
					if do := between; do != nil && step.Phase == "store" {
						between = nil
						do()
					}
					return nil
				}})
				cl, m := newClient(t, s, "admin"), machine("m")
				Expect(cl.Create(t.Context(), m)).To(Succeed())
				between = func() {
					other := machine("m")
					Expect(cl.Patch(t.Context(), other, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"other":"yes"}}}`)))).To(Succeed())
				}
				err := c.write(t.Context(), cl, m)
				Expect(apierrors.IsConflict(err)).To(Equal(c.refused), "%v", err)
				Expect(cl.Get(t.Context(), client.ObjectKeyFromObject(m), m)).To(Succeed())
				Expect(m.Annotations).To(HaveKey("other"))
				Expect(m.Annotations).To(HaveLen(map[bool]int{true: 1, false: 2}[c.refused]))
			})
		})
	}
}
