// SPDX-License-Identifier: Apache-2.0

// Package profiles reads the diagnostics of a program of Heirloom while a benchmark measures it, and takes CPU profiles.
package profiles

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/transport"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/stage"
)

const (
	// variable names a directory for CPU profiles of Heirloom, which are taken one after the other while a step is measured:
	// <step>-<number>.pb.gz. To take them costs CPU itself, a little.
	variable = "BENCH_PROFILES"
	// seconds is how long a profile is. The last one of a step may end after it.
	seconds = 3
)

// Wanted reports whether Heirloom is profiled.
func Wanted() bool { return os.Getenv(variable) != "" }

// Flag is how the program must serve its diagnostics: as it does by default if it is profiled, since insecure ones have no profiles.
func Flag() string { return fmt.Sprintf("--insecure-diagnostics=%t", !Wanted()) }

// Reader reads the diagnostics of a stage's program. The zero value reads those of other programs, and takes no profiles.
type Reader struct {
	// MetricsURL is where the program serves its metrics.
	MetricsURL string
	client     http.Client
}

// New makes a reader for a program that has been started with Flag.
func New(ctx context.Context, s *stage.Stage) (*Reader, error) {
	r := &Reader{MetricsURL: s.MetricsURL}
	if !Wanted() {
		return r, nil
	}
	token, err := authenticate(ctx, s.Client)
	if err != nil {
		return nil, err
	}
	// The certificate is one that the program has made for itself.
	anyServer := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	r.client.Transport = transport.NewBearerAuthRoundTripper(token, anyServer)
	r.MetricsURL = strings.Replace(s.MetricsURL, "http:", "https:", 1)
	return r, nil
}

// authenticate returns a token of somebody who may read diagnostics.
func authenticate(ctx context.Context, c client.Client) (string, error) {
	reader := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: stage.Namespace, Name: "reader"}}
	for _, object := range []client.Object{
		reader,
		&rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: "reader"},
			Rules:      []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics", "/debug/pprof/*"}, Verbs: []string{"get"}}},
		},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "reader"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "reader"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: stage.Namespace, Name: "reader"}},
		},
	} {
		if err := c.Create(ctx, object); err != nil {
			return "", fmt.Errorf("creating %T %s: %w", object, object.GetName(), err)
		}
	}
	token := &authenticationv1.TokenRequest{}
	if err := c.SubResource("token").Create(ctx, reader, token); err != nil {
		return "", fmt.Errorf("asking for a token: %w", err)
	}
	return token.Status.Token, nil
}

// Profile takes profiles of a step, if they are wanted, until the returned function is called, which waits for the last one.
func (r *Reader) Profile(ctx context.Context, step string) (stop func() error) {
	if !Wanted() || r.MetricsURL == "" {
		return func() error { return nil }
	}
	end, ended := make(chan struct{}), make(chan error)
	go func() {
		var errs []error
		for number := 1; ; number++ {
			errs = append(errs, r.take(ctx, fmt.Sprintf("%s-%02d.pb.gz", step, number)))
			select {
			case <-end:
				ended <- errors.Join(errs...)
				return
			default:
			}
		}
	}()
	return func() error {
		close(end)
		return <-ended
	}
}

func (r *Reader) take(ctx context.Context, name string) error {
	url := fmt.Sprintf("%s/debug/pprof/profile?seconds=%d", strings.TrimSuffix(r.MetricsURL, "/metrics"), seconds)
	response, err := r.Get(ctx, url)
	if err != nil {
		return err
	}
	profile, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return fmt.Errorf("reading a profile: %w", err)
	}
	if err := os.WriteFile(filepath.Join(os.Getenv(variable), name), profile, 0o600); err != nil {
		return fmt.Errorf("writing a profile: %w", err)
	}
	return nil
}

// Get asks a program for its diagnostics.
func (r *Reader) Get(ctx context.Context, url string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("asking for diagnostics: %w", err)
	}
	response, err := r.client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("asking for diagnostics: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, errors.Join(fmt.Errorf("asking for diagnostics at %s: %s", url, response.Status), response.Body.Close())
	}
	return response, nil
}
