// SPDX-License-Identifier: Apache-2.0

// Package certs is about the webhook server's serving certificate. It comes from cert-manager, through a Secret that is
// mounted into the Pod; controller-runtime's certificate watcher loads it again when it changes.
package certs

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/healthz"
)

// File names of a certificate and its key in their directory, as in a Secret of type kubernetes.io/tls.
const (
	CertName = "tls.crt"
	KeyName  = "tls.key"
)

// Checker reports whether the certificate in dir can be loaded and is valid at the time of the check.
func Checker(dir string) healthz.Checker {
	return func(*http.Request) error {
		return check(dir, time.Now())
	}
}

// Expiry returns when the certificate in dir expires, if it can be loaded.
func Expiry(dir string) (time.Time, bool) {
	pair, err := load(dir)
	if err != nil {
		return time.Time{}, false
	}
	return pair.Leaf.NotAfter, true
}

func load(dir string) (tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, CertName), filepath.Join(dir, KeyName))
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("loading the serving certificate: %w", err)
	}
	return pair, nil
}

func check(dir string, now time.Time) error {
	pair, err := load(dir)
	if err != nil {
		return err
	}
	if now.Before(pair.Leaf.NotBefore) || now.After(pair.Leaf.NotAfter) {
		return fmt.Errorf("the serving certificate is valid from %s to %s only", pair.Leaf.NotBefore.UTC(), pair.Leaf.NotAfter.UTC())
	}
	return nil
}
