// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
)

// File names of a certificate and its key in their directory, as in a Secret of type kubernetes.io/tls.
const (
	CertName = "tls.crt"
	KeyName  = "tls.key"
)

// Source is where servers get their certificate from: the memory of this process.
type Source func(*tls.ClientHelloInfo) (*tls.Certificate, error)

// FromFiles returns the source of the certificate in a directory, and a watcher that reloads it when it changes. If it
// cannot be reloaded, the previous one is served.
func FromFiles(dir string) (Source, *certwatcher.CertWatcher, error) {
	watcher, err := certwatcher.New(filepath.Join(dir, CertName), filepath.Join(dir, KeyName))
	if err != nil {
		return nil, nil, fmt.Errorf("loading the serving certificate: %w", err)
	}
	return watcher.GetCertificate, watcher, nil
}

// Serve makes a server take its certificate from here.
func (s Source) Serve(config *tls.Config) { config.GetCertificate = s }

// NotAfter returns when the served certificate expires, if there is one yet.
func (s Source) NotAfter() (time.Time, bool) {
	certificate, err := s(nil)
	if err != nil {
		return time.Time{}, false
	}
	return certificate.Leaf.NotAfter, true
}

// Check reports whether there is a certificate that is valid now. It is a healthz.Checker.
func (s Source) Check(*http.Request) error { return s.check(time.Now()) }

func (s Source) check(now time.Time) error {
	certificate, err := s(nil)
	if err != nil {
		return err
	}
	if !validAt(certificate.Leaf, now) {
		return fmt.Errorf("the serving certificate is valid from %s to %s only", certificate.Leaf.NotBefore.UTC(), certificate.Leaf.NotAfter.UTC())
	}
	return nil
}

var errNone = errors.New("there is no serving certificate yet")
