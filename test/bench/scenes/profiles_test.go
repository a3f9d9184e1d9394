// SPDX-License-Identifier: Apache-2.0

package scenes

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
	// profilesVariable names a directory for CPU profiles of Heirloom, which are taken one after the other while a step is measured:
	// <step>-<number>.pb.gz. To take them costs CPU itself, a little.
	profilesVariable = "BENCH_PROFILES"
	// profileSeconds is how long a profile is. The last one of a step may end after it.
	profileSeconds = 3
)

// profiled reports whether Heirloom is profiled. Then its diagnostics are served as they are by default: insecure ones have no profiles.
func profiled() bool { return os.Getenv(profilesVariable) != "" }

// authenticate makes a client for diagnostics that asks who is reading.
func (w *world) authenticate(ctx context.Context) error {
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
		if err := w.Client.Create(ctx, object); err != nil {
			return fmt.Errorf("creating %T %s: %w", object, object.GetName(), err)
		}
	}
	token := &authenticationv1.TokenRequest{}
	if err := w.Client.SubResource("token").Create(ctx, reader, token); err != nil {
		return fmt.Errorf("asking for a token: %w", err)
	}
	// The certificate is one that the program has made for itself.
	anyServer := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	w.http = &http.Client{Transport: transport.NewBearerAuthRoundTripper(token.Status.Token, anyServer)}
	w.MetricsURL = strings.Replace(w.MetricsURL, "http:", "https:", 1)
	return nil
}

// profile takes profiles of a step until the returned function is called, which waits for the last one.
func (w *world) profile(ctx context.Context, step string) (stop func() error) {
	if !profiled() || !w.heirloom {
		return func() error { return nil }
	}
	end, ended := make(chan struct{}), make(chan error)
	go func() {
		var errs []error
		for number := 1; ; number++ {
			errs = append(errs, w.takeProfile(ctx, fmt.Sprintf("%s-%02d.pb.gz", step, number)))
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

func (w *world) takeProfile(ctx context.Context, name string) error {
	url := fmt.Sprintf("%s/debug/pprof/profile?seconds=%d", strings.TrimSuffix(w.MetricsURL, "/metrics"), profileSeconds)
	response, err := w.get(ctx, url)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	profile, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("reading a profile: %w", err)
	}
	if err := os.WriteFile(filepath.Join(os.Getenv(profilesVariable), name), profile, 0o600); err != nil {
		return fmt.Errorf("writing a profile: %w", err)
	}
	return nil
}

// get asks a program for its diagnostics.
func (w *world) get(ctx context.Context, url string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("asking for diagnostics: %w", err)
	}
	response, err := w.http.Do(request)
	if err != nil {
		return nil, fmt.Errorf("asking for diagnostics: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, errors.Join(fmt.Errorf("asking for diagnostics at %s: %s", url, response.Status), response.Body.Close())
	}
	return response, nil
}
