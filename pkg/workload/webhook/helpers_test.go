// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

var secretKey = types.NamespacedName{Namespace: "heirloom-system", Name: "key"}

// installed is the chart's configuration as the management cluster's API server returns it.
const installed = `
metadata: {name: heirloom, labels: {app.kubernetes.io/managed-by: Helm}}
webhooks:
  - name: machines.heirloom.dev
    clientConfig: {service: {name: heirloom-webhook, namespace: heirloom-system, path: /mutate/machines, port: 443}}
    failurePolicy: Ignore
  - name: nodes.heirloom.dev
    clientConfig: {service: {name: heirloom-webhook, namespace: heirloom-system, path: /mutate/nodes, port: 443}}
    admissionReviewVersions: [v1]
    sideEffects: None
    failurePolicy: Ignore
    timeoutSeconds: 2
    reinvocationPolicy: IfNeeded
    matchPolicy: Equivalent
    rules: [{apiGroups: [""], apiVersions: [v1], resources: [nodes], operations: [CREATE, UPDATE], scope: Cluster}]
    namespaceSelector: {}
    objectSelector: {matchExpressions: [{key: heirloom.dev/ignore, operator: DoesNotExist}]}
    matchConditions:
      - {name: not-deleting, expression: "!has(object.metadata.deletionTimestamp)"}
      - {name: changed, expression: "request.operation == 'CREATE' || object.metadata.?labels != oldObject.metadata.?labels"}
`

func installedWith(t *testing.T, caBundle []byte) *admissionregistrationv1.MutatingWebhookConfiguration {
	t.Helper()
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{}
	NewWithT(t).Expect(yaml.UnmarshalStrict([]byte(installed), configuration)).To(Succeed())
	for i := range configuration.Webhooks {
		configuration.Webhooks[i].ClientConfig.CABundle = caBundle
	}
	return configuration
}

// newCA returns the certificate of a new CA, in PEM.
func newCA(t *testing.T) []byte {
	t.Helper()
	Expect := NewWithT(t).Expect
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	Expect(err).NotTo(HaveOccurred())
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
}

// secretWith returns the Secret with this key.
func secretWith(key []byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: secretKey.Namespace, Name: secretKey.Name}, Data: map[string][]byte{keyData: key},
	}
}

// always returns a function that returns this key.
func always(key []byte) func(context.Context) []byte {
	return func(context.Context) []byte { return key }
}

// apiServer is the API server of a cluster that records the writes.
type apiServer struct {
	client.Client
	mu     sync.Mutex // guards the fields below, for tests in which another goroutine writes
	writes []string
	// before holds a function that runs right before the next request, and fail the error of requests, each by verb.
	before map[string]func()
	fail   map[string]error
}

func newAPIServer(objects ...client.Object) *apiServer {
	s := &apiServer{before: map[string]func(){}, fail: map[string]error{}}
	s.Client = fake.NewClientBuilder().WithReturnManagedFields().WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
			return cmp.Or(s.failure("get"), c.Get(ctx, key, into, options...))
		},
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			return s.write("create", func() error { return c.Create(ctx, object, options...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.UpdateOption) error {
			return s.write("update", func() error { return c.Update(ctx, object, options...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			return s.write("delete", func() error { return c.Delete(ctx, object, options...) })
		},
	}).Build()
	return s
}

func (s *apiServer) write(verb string, write func() error) error {
	s.mu.Lock()
	s.writes = append(s.writes, verb)
	s.mu.Unlock()
	if before := s.before[verb]; before != nil {
		delete(s.before, verb)
		before()
	}
	if err := s.failure(verb); err != nil {
		return err
	}
	return write()
}

func (s *apiServer) failure(verb string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fail[verb]
}

// mend lets requests with this verb succeed, and returns all writes so far.
func (s *apiServer) mend(verb string) (written []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.fail, verb)
	return slices.Clone(s.writes)
}

// registered returns the configuration in a workload cluster, or nil.
func (s *apiServer) registered(t *testing.T) *admissionregistrationv1.MutatingWebhookConfiguration {
	t.Helper()
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{}
	err := s.Get(t.Context(), types.NamespacedName{Name: ObjectName}, configuration)
	if apierrors.IsNotFound(err) {
		return nil
	}
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return configuration
}

// leadsTo returns the URL of a configuration's first webhook.
func leadsTo(configuration *admissionregistrationv1.MutatingWebhookConfiguration) string {
	return ptr.Deref(configuration.Webhooks[0].ClientConfig.URL, "")
}
