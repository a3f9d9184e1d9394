// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"cmp"
	"context"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/heirloom-dev/heirloom/pkg/rotation"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

var (
	noon      = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	secretKey = types.NamespacedName{Namespace: "heirloom-system", Name: "heirloom-webhook-authority"}
	usual     = Schedule{Hosts: []string{"heirloom-webhook.heirloom-system.svc", "127.0.0.1"}, Validity: 2 * time.Hour, CAValidity: 12 * time.Hour, Grace: 10 * time.Minute}
)

// secretOf is the Secret with that state.
func secretOf(t *testing.T, st state) *corev1.Secret {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: secretKey.Namespace, Name: secretKey.Name}}
	NewWithT(t).Expect(st.put(secret)).To(Succeed())
	return secret
}

// begun is the state of a new Secret.
func begun(t *testing.T, now time.Time) state {
	t.Helper()
	st, changed, err := usual.advance(state{}, now)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(changed).To(BeTrue())
	return st
}

// installed are the webhook configurations as the chart installs them.
func installed() []client.Object {
	url := "https://127.0.0.1:9443/mutate"
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "heirloom"}}
	for _, name := range []string{"machines.heirloom.dev", "nodes.heirloom.dev"} {
		mutating.Webhooks = append(mutating.Webhooks, admissionregistrationv1.MutatingWebhook{
			Name: name, ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url},
		})
	}
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "heirloom"}}
	validating.Webhooks = []admissionregistrationv1.ValidatingWebhook{{
		Name: "taints.heirloom.dev", ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url},
	}}
	return []client.Object{mutating, validating}
}

// apiServer is an API server that records what is written.
type apiServer struct {
	client.Client
	writes []string
	// before is what happens right before a request, once, and fail what it fails with, each by the verb.
	before map[string]func()
	fail   map[string]error
}

func newAPIServer(objects ...client.Object) *apiServer {
	s := &apiServer{before: map[string]func(){}, fail: map[string]error{}}
	s.Client = fake.NewClientBuilder().WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
			return cmp.Or(s.fail["get"], c.Get(ctx, key, into, options...))
		},
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			return s.write("create", func() error { return c.Create(ctx, object, options...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.UpdateOption) error {
			return s.write("update", func() error { return c.Update(ctx, object, options...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			return s.write("patch", func() error { return c.Patch(ctx, object, patch, options...) })
		},
	}).Build()
	return s
}

func (s *apiServer) write(verb string, write func() error) error {
	if before := s.before[verb]; before != nil {
		delete(s.before, verb)
		before()
	}
	if err := s.fail[verb]; err != nil {
		return err
	}
	err := write()
	if err == nil {
		s.writes = append(s.writes, verb)
	}
	return err
}

// stored is the state in the Secret.
func (s *apiServer) stored(t *testing.T) state {
	t.Helper()
	secret := &corev1.Secret{}
	NewWithT(t).Expect(s.Get(t.Context(), secretKey, secret)).To(Succeed())
	st, err := stateIn(secret)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return st
}

// bundles are the CA bundles of all webhooks.
func (s *apiServer) bundles(t *testing.T) []string {
	t.Helper()
	found, err := read(t.Context(), s, "heirloom")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	var bundles []string
	for _, c := range found {
		for _, webhook := range clientConfigs(c) {
			bundles = append(bundles, string(webhook.CABundle))
		}
	}
	return bundles
}

// clock is what time it is in a test.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

func newKeeper(server *apiServer, c *clock) *Keeper {
	return &Keeper{
		Schedule: usual, Shared: rotation.Shared{Live: server, Writer: server, Secret: secretKey, Now: c.Now}, Configuration: "heirloom",
	}
}

// settle lets a keeper do all that is due now.
func (k *Keeper) settle(t *testing.T) {
	t.Helper()
	for range 10 {
		again, err := k.Keep(t.Context())
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		if again > soon {
			return
		}
	}
	t.Fatal("it never comes to rest")
}
