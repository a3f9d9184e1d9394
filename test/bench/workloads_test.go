// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/sim/apiserver"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// The states of workload clusters.
const (
	healthy  = ""
	hanging  = "hanging"  // accepts requests and never answers
	refused  = "refused"  // accepts no connection
	slow     = "slow"     // answers after two seconds
	flapping = "flapping" // loses all connections for five seconds out of fifteen
)

// stateOf returns the state of a workload cluster: out of a hundred, five are unreachable and one is flapping.
func stateOf(cluster int) string {
	switch {
	case cluster%20 == 0:
		return []string{hanging, refused, slow}[cluster/20%3]
	case cluster%100 == 1:
		return flapping
	default:
		return healthy
	}
}

// workload is a workload cluster. Its API server is in the memory of this process and serves over TLS, like a real API server.
type workload struct {
	client.Client
	state  string
	server *httptest.Server
	door   *stage.Door
}

// newWorkload starts the API server of a workload cluster with Nodes, which the census counts if the workload cluster is healthy.
func newWorkload(ctx context.Context, cluster, nodes int, c *census) (*workload, error) {
	w := &workload{state: stateOf(cluster)}
	options := apiserver.Options{Name: clusterName(cluster), Unguarded: true}
	if w.state == healthy {
		options.Stored = c.stored
	}
	server, err := apiserver.New(options)
	if err != nil {
		return nil, err
	}
	if w.Client, err = client.New(server.Client("kubelet"), client.Options{Mapper: server.Mapper()}); err != nil {
		return nil, err
	}
	for i := range nodes {
		if err := w.Create(ctx, stage.Node(nodeName(cluster, i))); err != nil {
			return nil, err
		}
	}
	w.server = httptest.NewUnstartedServer(w.handler(server))
	w.server.EnableHTTP2, w.server.Config.ErrorLog = true, log.New(io.Discard, "", 0)
	w.server.StartTLS()
	if w.door, err = stage.NewDoor(w.server.Listener.Addr().String()); err == nil && w.state == refused {
		w.door.Shut()
	}
	return w, err
}

func (w *workload) handler(server http.Handler) http.Handler {
	wait := map[string]time.Duration{hanging: time.Hour, slow: 2 * time.Second}[w.state]
	return http.HandlerFunc(func(response http.ResponseWriter, r *http.Request) {
		if wait == 0 || waited(r.Context(), wait) {
			server.ServeHTTP(response, r)
		}
	})
}

// kubeconfig returns an administrator's kubeconfig.
func (w *workload) kubeconfig() ([]byte, error) {
	const name = "admin"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{
		Server:                   "https://" + w.door.Address(),
		CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.server.Certificate().Raw}),
	}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: name}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	return clientcmd.Write(*config)
}

// flap shuts and opens the doors of flapping workload clusters until the end of the benchmark.
func flap(b *testing.B, workloads []*workload) {
	b.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.Context()))
	var all errgroup.Group
	for _, w := range workloads {
		if w.state == flapping {
			all.Go(func() error {
				for waited(ctx, 10*time.Second) {
					w.door.Shut()
					waited(ctx, 5*time.Second)
					if err := w.door.Open(); err != nil {
						return err
					}
				}
				return nil
			})
		}
	}
	b.Cleanup(func() {
		cancel()
		if err := all.Wait(); err != nil {
			b.Error(err)
		}
	})
}

// waited waits, and reports whether ctx lasted so long.
func waited(ctx context.Context, duration time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(duration):
		return true
	}
}

// closeAll closes the API servers.
func closeAll(workloads []*workload) {
	var all sync.WaitGroup
	for _, w := range workloads {
		all.Go(func() {
			w.door.Shut()
			w.server.CloseClientConnections()
			w.server.Close()
		})
	}
	all.Wait()
}

// strip removes a label from all Nodes of the healthy workload clusters.
func strip(ctx context.Context, workloads []*workload, nodes int, label string) error {
	for i, w := range workloads {
		if w.state != healthy {
			continue
		}
		for n := range nodes {
			patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:null}}}`, label))
			if err := w.Patch(ctx, stage.Node(nodeName(i, n)), patch); err != nil {
				return err
			}
		}
	}
	return nil
}

// census counts the Nodes of healthy workload clusters that have a label or a taint.
type census struct {
	has  atomic.Pointer[func(node *unstructured.Unstructured) bool]
	have atomic.Int64
}

// count counts the Nodes with another label or taint from now on. No Node may have it.
func (c *census) count(has func(node *unstructured.Unstructured) bool) {
	c.has.Store(&has)
	c.have.Store(0)
}

// labeled reports whether a Node has a label, tainted whether it has a taint that evicts Pods.
func labeled(label string) func(*unstructured.Unstructured) bool {
	return func(node *unstructured.Unstructured) bool {
		return metav1.HasLabel(metav1.ObjectMeta{Labels: node.GetLabels()}, label)
	}
}

func tainted(key string) func(*unstructured.Unstructured) bool {
	return func(node *unstructured.Unstructured) bool {
		taints, _, _ := unstructured.NestedSlice(node.Object, "spec", "taints")
		return slices.ContainsFunc(taints, func(taint any) bool {
			of, _ := taint.(map[string]any)
			return of["key"] == key && of["effect"] == string(corev1.TaintEffectNoExecute)
		})
	}
}

// stored is called for each stored version of each object.
func (c *census) stored(w apiserver.Write) {
	if w.GVR.GroupResource() != corev1.Resource("nodes") || w.After == nil {
		return
	}
	is := *c.has.Load()
	has, had := is(w.After), w.Before != nil && is(w.Before)
	if has && !had {
		c.have.Add(1)
	} else if had && !has {
		c.have.Add(-1)
	}
}
