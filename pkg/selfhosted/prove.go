// SPDX-License-Identifier: Apache-2.0

package selfhosted

import (
	"context"
	"fmt"
	"net/http"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/workload/connect"
)

// Bounds of a request to a server that a kubeconfig's writer has chosen.
const (
	requestTimeout = 5 * time.Second
	// largestAnswer is how many bytes are read of its answer, which is a Namespace.
	largestAnswer = 1 << 20
)

// Prover proves which Cluster is the management cluster itself, by its kubeconfig.
type Prover struct {
	// Live reads from our own API server: Secrets with kubeconfigs, and the Namespace kube-system.
	Live client.Reader
	// Config says how our own API server is reached.
	Config *rest.Config
}

// Prove reports whether the Cluster's kubeconfig leads to our own API server, and has an administrator's credentials there.
// The error says why that is not known. Nothing of our own is sent to the server that the kubeconfig names.
func (p Prover) Prove(ctx context.Context, cluster types.NamespacedName) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*requestTimeout)
	defer cancel()
	theirs, err := connect.RESTConfig(ctx, p.Live, cluster)
	if err != nil {
		return false, err
	}
	theirs.Timeout, theirs.UserAgent = requestTimeout, p.Config.UserAgent
	theirs.Wrap(func(next http.RoundTripper) http.RoundTripper { return limited{next} })
	ours := &corev1.Namespace{}
	if err := p.Live.Get(ctx, types.NamespacedName{Name: metav1.NamespaceSystem}, ours); err != nil {
		return false, fmt.Errorf("reading our own Namespace %s: %w", metav1.NamespaceSystem, err)
	}
	if same, err := leadsTo(ctx, theirs, ours.UID); !same || err != nil {
		return false, err
	}
	return p.administrates(ctx, theirs)
}

// limited reads no more of an answer than there may be. Without it, a server could answer without an end, and use up the memory of each
// replica.
type limited struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (l limited) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := l.RoundTripper.RoundTrip(request)
	if err == nil {
		response.Body = http.MaxBytesReader(nil, response.Body, largestAnswer)
	}
	return response, err //nolint:wrapcheck // it is the caller's own
}

// leadsTo reports whether the API server's Namespace kube-system has this UID.
func leadsTo(ctx context.Context, config *rest.Config, uid types.UID) (bool, error) {
	server, err := kubernetes.NewForConfig(config)
	if err != nil {
		return false, fmt.Errorf("using the kubeconfig: %w", err)
	}
	theirs, err := server.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if refused(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("asking the API server that the kubeconfig leads to: %w", err)
	}
	return theirs.UID == uid, nil
}

// administrates reports whether our own API server lets those who have these credentials do everything.
func (p Prover) administrates(ctx context.Context, theirs *rest.Config) (bool, error) {
	config := rest.AnonymousClientConfig(p.Config)
	config.Timeout = requestTimeout
	config.BearerToken, config.Username, config.Password = theirs.BearerToken, theirs.Username, theirs.Password
	config.CertData, config.KeyData = theirs.CertData, theirs.KeyData
	own, err := kubernetes.NewForConfig(config)
	if err != nil {
		return false, fmt.Errorf("using the credentials of the kubeconfig: %w", err)
	}
	everything := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "*", Group: "*", Resource: "*"},
	}}
	review, err := own.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, everything, metav1.CreateOptions{})
	if refused(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("asking our own API server what the credentials of the kubeconfig are for: %w", err)
	}
	return review.Status.Allowed, nil
}

// refused reports whether an API server has answered that the user may not do this.
func refused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)
}
