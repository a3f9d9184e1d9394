// SPDX-License-Identifier: Apache-2.0

// Package certs provides the serving certificate of the webhook servers: from files that cert-manager or an operator mounts into the Pod,
// or from a Secret that cert-controller fills.
package certs

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/open-policy-agent/cert-controller/pkg/rotator"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// lookahead is the time before its expiration at which a certificate is replaced.
const lookahead = 30 * 24 * time.Hour

// injected is the annotation that lets cert-manager's injector manage the CA bundles of a webhook configuration.
const injected = "cert-manager.io/inject-ca-from"

// Source returns the serving certificate, from the memory of this process. It is a tls.Config.GetCertificate.
type Source func(*tls.ClientHelloInfo) (*tls.Certificate, error)

// FromFiles returns the source of the certificate in a directory. As a manager.Runnable, it reloads the certificate when a file changes. If
// the reload fails, it serves the previous certificate.
func FromFiles(dir string) (*certwatcher.CertWatcher, error) {
	watcher, err := certwatcher.New(filepath.Join(dir, corev1.TLSCertKey), filepath.Join(dir, corev1.TLSPrivateKeyKey))
	if err != nil {
		return nil, fmt.Errorf("loading the serving certificate: %w", err)
	}
	return watcher, nil
}

// NotAfter returns the expiration time of the served certificate, or false while there is no certificate.
func (s Source) NotAfter() (time.Time, bool) {
	certificate, err := s(nil)
	if err != nil {
		return time.Time{}, false
	}
	return certificate.Leaf.NotAfter, true
}

// Check returns an error unless there is a certificate that is valid now. It is a healthz.Checker.
func (s Source) Check(*http.Request) error {
	certificate, err := s(nil)
	if err != nil {
		return err
	}
	if now, leaf := time.Now(), certificate.Leaf; now.Before(leaf.NotBefore) || now.After(leaf.NotAfter) {
		return fmt.Errorf("the serving certificate is valid only from %s to %s", leaf.NotBefore.UTC(), leaf.NotAfter.UTC())
	}
	return nil
}

// Own is a certificate that Heirloom manages itself. cert-controller makes the certificate and a CA in a Secret that all replicas share,
// replaces both in time, and publishes the CA. No leader is needed: in a rolling update, the leader may be a Pod that does not know the
// Secret.
type Own struct {
	Secret types.NamespacedName
	// Configuration is the name of both webhook configurations, mutating and validating, in which the CA is published.
	Configuration string
	// Hosts are the DNS names of the certificate.
	Hosts []string
	// Dir is the directory into which the certificate is written, because cert-controller waits for the file. It is served from memory.
	Dir string

	serving atomic.Pointer[tls.Certificate]
	client  client.Client
	cache   cache.Cache // of cert-controller
}

// Source implements the type Source.
func (o *Own) Source(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if certificate := o.serving.Load(); certificate != nil {
		return certificate, nil
	}
	return nil, errors.New("there is no serving certificate yet")
}

// Add adds the certificate to a manager, on every replica.
func (o *Own) Add(ctx context.Context, mgr ctrl.Manager) error {
	o.client = mgr.GetClient()
	first, others, err := o.hosts(ctx, mgr.GetAPIReader())
	if err != nil {
		return err
	}
	if err := rotator.AddRotator(confined{mgr, o}, &rotator.CertRotator{
		SecretKey: o.Secret, CertDir: o.Dir, FieldOwner: "heirloom", IsReady: make(chan struct{}),
		CAName: "heirloom-webhook-ca", CAOrganization: "heirloom.dev", DNSName: first, ExtraDNSNames: others,
		CaCertDuration: 10 * 365 * 24 * time.Hour, ServerCertDuration: 90 * 24 * time.Hour, LookaheadInterval: lookahead,
		Webhooks: []rotator.WebhookInfo{{Name: o.Configuration, Type: rotator.Mutating}, {Name: o.Configuration, Type: rotator.Validating}},
	}); err != nil {
		return fmt.Errorf("adding cert-controller: %w", err)
	}
	return ctrl.NewControllerManagedBy(mgr).Named("certificate").WithOptions(controller.Options{NeedLeaderElection: ptr.To(false)}).
		WatchesRawSource(source.Kind(o.cache, &corev1.Secret{}, &handler.TypedEnqueueRequestForObject[*corev1.Secret]{})).
		Complete(o)
}

// hosts returns the DNS names of the certificate. cert-controller replaces a certificate that lacks the first name. Names in the current
// certificate stay: in a rolling update, other replicas need them, and would in turn remove the names of this replica.
func (o *Own) hosts(ctx context.Context, live client.Reader) (first string, others []string, err error) {
	if err := o.create(ctx); err != nil {
		return "", nil, err
	}
	secret, all := &corev1.Secret{}, sets.New[string]()
	if err := live.Get(ctx, o.Secret, secret); err != nil {
		return "", nil, fmt.Errorf("getting the Secret of the serving certificate: %w", err)
	}
	if pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey]); err == nil {
		all.Insert(pair.Leaf.DNSNames...)
	}
	first = o.Hosts[0]
	if lacking := sets.New(o.Hosts...).Difference(all); lacking.Len() > 0 {
		first = sets.List(lacking)[0]
	}
	return first, sets.List(all.Insert(o.Hosts...).Delete(first)), nil
}

// create creates the Secret, which cert-controller only fills.
func (o *Own) create(ctx context.Context) error {
	secret := &corev1.Secret{Type: corev1.SecretTypeTLS, Data: map[string][]byte{corev1.TLSCertKey: {}, corev1.TLSPrivateKeyKey: {}}}
	secret.Namespace, secret.Name = o.Secret.Namespace, o.Secret.Name
	secret.Labels = map[string]string{"app.kubernetes.io/name": "heirloom", "app.kubernetes.io/managed-by": "heirloom"}
	if err := o.client.Create(ctx, secret); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating the Secret of the serving certificate: %w", err)
	}
	return nil
}

// Reconcile implements reconcile.Reconciler: it serves the certificate in the Secret, and creates the Secret again if it was deleted.
func (o *Own) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	secret := &corev1.Secret{}
	if err := o.cache.Get(ctx, o.Secret, secret); apierrors.IsNotFound(err) {
		return ctrl.Result{}, o.create(ctx)
	} else if err != nil {
		return ctrl.Result{}, fmt.Errorf("getting the Secret of the serving certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return ctrl.Result{}, nil //nolint:nilerr // cert-controller is about to replace it
	}
	o.serving.Store(&pair)
	ctrl.LoggerFrom(ctx).Info("Serving the certificate in the Secret", "until", pair.Leaf.NotAfter, "serial", pair.Leaf.SerialNumber.String())
	certificate := filepath.Join(o.Dir, corev1.TLSCertKey)
	if err := errors.Join(os.MkdirAll(o.Dir, 0o700), os.WriteFile(certificate, secret.Data[corev1.TLSCertKey], 0o600)); err != nil {
		return ctrl.Result{}, fmt.Errorf("writing the serving certificate for cert-controller: %w", err)
	}
	return ctrl.Result{}, nil
}

// confined is the manager for cert-controller. It watches only Heirloom's own Secret and webhook configurations, so that it needs no rights
// to others, and it does not fight cert-manager's injector.
type confined struct {
	ctrl.Manager
	own *Own
}

// Add implements manager.Manager.
func (c confined) Add(runnable manager.Runnable) error {
	switch theirs := runnable.(type) {
	case cache.Cache:
		c.own.cache = theirs
	case *rotator.CertRotator:
		runnable = lasting{theirs, c.own}
	}
	return c.Manager.Add(runnable)
}

// lasting is cert-controller's runnable, which fails if there is no certificate or its CA is not published. The loop needs neither, and
// readiness reports that the webhooks have none, so the program goes on. cert-controller's reconciler goes on as well: it makes, renews and
// publishes certificates when the Secret or a webhook configuration changes, at the resync of the cache every ten hours, and within 17
// minutes after a failure.
type lasting struct {
	*rotator.CertRotator
	own *Own
}

// Start implements manager.Runnable. It creates a Secret again that was deleted before the caches were filled: nothing else notices this.
func (l lasting) Start(ctx context.Context) error {
	if err := l.CertRotator.Start(ctx); err != nil && ctx.Err() == nil {
		ctrl.Log.WithName("certificate").Error(errors.Join(err, l.own.create(ctx)), "Certificate is missing or its CA is not published; retrying")
	}
	<-ctx.Done()
	return nil
}

// GetConfig implements manager.Manager. cert-controller's cache lists and watches with this configuration, which selects objects by their
// name.
func (c confined) GetConfig() *rest.Config {
	config := rest.CopyConfig(c.Manager.GetConfig())
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			name := c.own.Configuration
			if path.Base(request.URL.Path) == "secrets" {
				name = c.own.Secret.Name
			}
			request = request.Clone(request.Context())
			query := request.URL.Query()
			query.Set("fieldSelector", "metadata.name="+name)
			request.URL.RawQuery = query.Encode()
			return next.RoundTrip(request)
		})
	})
	return config
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }

// GetClient implements manager.Manager. cert-controller updates objects with this client.
func (c confined) GetClient() client.Client { return considerate{c.Manager.GetClient()} }

type considerate struct{ client.Client }

// Update implements client.Writer. It leaves a webhook configuration alone in which cert-manager publishes another CA.
func (c considerate) Update(ctx context.Context, object client.Object, options ...client.UpdateOption) error {
	if from, found := object.GetAnnotations()[injected]; found {
		return fmt.Errorf("cert-manager injects the CA into webhook configuration %s (annotation %s=%s): "+
			"remove the annotation, or do not use --webhook-cert-secret", object.GetName(), injected, from)
	}
	return c.Client.Update(ctx, object, options...)
}
