// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/heirloom-dev/heirloom/cmd/heirloom/app"
	"github.com/heirloom-dev/heirloom/pkg/config"
	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/sim/apiserver"
	"github.com/heirloom-dev/heirloom/webhooks"
)

const (
	// home is the Cluster of the management cluster itself, and its namespace.
	home   = "home"
	system = "heirloom-system"
)

var flags = []string{
	"--management-cluster=" + home + "/" + home, "--workload-clusters=false", "--leader-elect", "--leader-elect-namespace=" + system,
	"--cluster-api-taint-propagation=enabled", "--no-execute-rate=0", "--no-execute=pace", "--no-execute-clusters=100%", "--per-cluster-no-execute=none",
	"--additional-provider-groups=infrastructure.example.com",
	`--additional-sync-machine-labels=^extra\.example\.com/`, `--additional-sync-machine-annotations=^extra\.example\.com/`,
}

// world is a management cluster with Heirloom, in memory.
type world struct {
	t        *testing.T
	server   *apiserver.Server
	user     client.Client
	webhooks []unstructured.Unstructured
	handler  http.Handler
	away     atomic.Bool // whether the API server refuses all requests
}

// newWorld makes a management cluster. With the chart's webhook configurations, only admission will act; without them, only the loop.
func newWorld(t *testing.T, crds []*apiextensionsv1.CustomResourceDefinition, configurations []unstructured.Unstructured) *world {
	t.Helper()
	w := &world{t: t, webhooks: configurations}
	var err error
	w.server, err = apiserver.New(apiserver.Options{Name: "management", CRDs: crds, Webhook: w.call, Turn: func(context.Context, apiserver.Step) error {
		if w.away.Load() {
			return errors.New("the API server is away")
		}
		return nil
	}})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	w.user, err = client.New(w.server.Client("someone"), client.Options{Mapper: w.server.Mapper()})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return w
}

// create creates an object as a user.
func (w *world) create(ctx context.Context, object client.Object) {
	w.t.Helper()
	if err := w.user.Create(ctx, object); err != nil {
		w.t.Fatalf("creating %T %s: %v", object, object.GetName(), err)
	}
}

func (w *world) createNamespace(ctx context.Context, name string) {
	w.t.Helper()
	w.create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

// start starts Heirloom, and returns a function that stops it.
func (w *world) start(ctx context.Context) (stop func()) {
	w.t.Helper()
	for _, configuration := range w.webhooks {
		w.create(ctx, configuration.DeepCopy())
	}
	if w.webhooks != nil {
		w.create(ctx, &coordinationv1.Lease{ // so that Heirloom does not become the leader
			ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "leader-election-heirloom"},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity: ptr.To("another"), LeaseDurationSeconds: ptr.To[int32](1e6), RenewTime: ptr.To(metav1.NowMicro()),
			},
		})
	}
	Expect := NewWithT(w.t).Expect
	options, parsed := config.NewOptions(), pflag.NewFlagSet("heirloom", pflag.ContinueOnError)
	options.AddFlags(parsed)
	Expect(parsed.Parse(flags)).To(Succeed())
	c, err := options.Complete()
	Expect(err).NotTo(HaveOccurred())
	h, err := app.New(ctx, w.server.Client("heirloom"), c, app.Environment{
		Metrics: prometheus.NewRegistry(),
		Options: []func(*ctrl.Options){func(o *ctrl.Options) {
			o.MapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return w.server.Mapper(), nil }
			o.Controller.SkipNameValidation = ptr.To(true)
		}},
	})
	Expect(err).NotTo(HaveOccurred())
	server := webhook.NewServer(webhook.Options{})
	webhooks.Register(server, h.Webhooks)
	w.handler = server.WebhookMux()
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- h.Manager.Start(ctx) }()
	return func() {
		// apimachinery's watch.Filter would wait for ever for a reader of its last event, so all watches end before Heirloom does.
		w.away.Store(true)
		w.server.CutWatches()
		synctest.Wait()
		cancel()
		if err := <-ended; err != nil {
			w.t.Errorf("Heirloom ended: %v", err)
		}
	}
}

// call calls a webhook of Heirloom.
func (w *world) call(ctx context.Context, hook admissionregistrationv1.MutatingWebhook, body []byte) ([]byte, error) {
	request := httptest.NewRequestWithContext(ctx, http.MethodPost, *hook.ClientConfig.Service.Path, bytes.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	answer := httptest.NewRecorder()
	w.handler.ServeHTTP(answer, request)
	if answer.Code != http.StatusOK {
		return nil, fmt.Errorf("the webhook answered %d: %s", answer.Code, answer.Body)
	}
	return answer.Body.Bytes(), nil
}

// readCRDs returns the CRDs of a release of Cluster API and of the test's providers.
func readCRDs(t *testing.T, paths []string) []*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	providers, err := controlplane.ProviderCRDPath(t.Context())
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	found := envtest.CRDInstallOptions{Paths: append(slices.Clip(paths), providers)}
	NewWithT(t).Expect(envtest.ReadCRDFiles(&found)).To(Succeed())
	for _, crd := range found.CRDs {
		crd.Spec.Conversion = nil // the API server has no conversion webhook
	}
	return found.CRDs
}

// renderWebhooks returns the chart's webhook configurations.
func renderWebhooks(t *testing.T) []unstructured.Unstructured {
	t.Helper()
	root, err := controlplane.RepositoryRoot(t.Context())
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	ca, _, err := certutil.GenerateSelfSignedCertKey("heirloom", nil, nil)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	objects, err := controlplane.RenderChart(t.Context(), filepath.Join(root, "deploy", "chart", "heirloom"), controlplane.ChartOptions{
		Namespace: system, Values: map[string]any{
			"additionalProviderGroups": []any{"infrastructure.example.com"}, "managementCluster": home + "/" + home,
			"certificates": map[string]any{"mode": "provided", "provided": map[string]any{
				"caBundle": base64.StdEncoding.EncodeToString(ca), "secretName": "none",
			}},
		},
	})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return slices.DeleteFunc(objects, func(object unstructured.Unstructured) bool { return object.GetKind() != "MutatingWebhookConfiguration" })
}
