// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/heirloom-dev/heirloom/pkg/rotation"
)

// The names in the Secret of what is not in every Secret of type kubernetes.io/tls, and the annotations with the times.
const (
	// bundleData is the published bundle. It is only for people to read: Heirloom uses the CAs themselves.
	bundleData     = "ca.crt"
	currentData    = "current-ca.crt"
	currentKeyData = "current-ca.key"
	nextData       = "next-ca.crt"
	nextKeyData    = "next-ca.key"
	previousData   = "previous-ca.crt"

	currentSinceAnnotation  = "heirloom.dev/current-since"
	nextPublishedAnnotation = "heirloom.dev/next-published"
)

// stateIn reads the Secret. Its error says what is wrong and never quotes the content. A serving certificate that cannot be
// read, or is not signed by the current CA, is ignored: unlike a CA, it can be made again.
func stateIn(secret *corev1.Secret) (state, error) {
	var errs []error
	read := func(name, keyName string) *tls.Certificate {
		if _, found := secret.Data[name]; !found {
			return nil
		}
		a, err := authorityIn(secret.Data[name], secret.Data[keyName])
		if err != nil {
			errs = append(errs, fmt.Errorf("its %q and %q: %w", name, keyName, err))
		}
		return a
	}
	st := state{
		current: read(currentData, currentKeyData), next: read(nextData, nextKeyData), leaf: leafIn(secret),
		currentSince:  rotation.TimeIn(secret, currentSinceAnnotation),
		nextPublished: rotation.TimeIn(secret, nextPublishedAnnotation),
	}
	if pem, found := secret.Data[previousData]; found {
		previous, err := certificateIn(pem)
		if err != nil {
			errs = append(errs, fmt.Errorf("its %q: %w", previousData, err))
		}
		st.previous = previous
	}
	if st.current == nil && len(errs) == 0 && len(secret.Data) > 0 {
		errs = append(errs, fmt.Errorf("it has no %q", currentData))
	}
	if err := errors.Join(errs...); err != nil {
		return state{}, fmt.Errorf("the Secret %s/%s has no usable CA (once it is deleted, a new one is made): %w", secret.Namespace, secret.Name, err)
	}
	if st.leaf != nil && (st.current == nil || st.leaf.Leaf.CheckSignatureFrom(st.current.Leaf) != nil) {
		st.leaf = nil
	}
	return st, nil
}

func authorityIn(certificatePEM, keyPEM []byte) (*tls.Certificate, error) {
	if _, err := certificateIn(certificatePEM); err != nil {
		return nil, err
	}
	// This also checks that key and certificate belong together.
	pair, err := tls.X509KeyPair(certificatePEM, keyPEM)
	return &pair, err
}

func certificateIn(pem []byte) (*x509.Certificate, error) {
	certificates, err := cert.ParseCertsPEM(pem)
	if err != nil {
		return nil, err
	}
	if len(certificates) != 1 || !certificates[0].IsCA {
		return nil, errors.New("it is not the one certificate of a CA")
	}
	return certificates[0], nil
}

func leafIn(secret *corev1.Secret) *tls.Certificate {
	pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return nil
	}
	return &pair
}

// put writes the state into the Secret, and keeps everything else in it.
func (s state) put(secret *corev1.Secret) error {
	keys := map[string]crypto.PrivateKey{corev1.TLSPrivateKeyKey: s.leaf.PrivateKey, currentKeyData: s.current.PrivateKey}
	certificates := map[string][]*x509.Certificate{
		corev1.TLSCertKey: {s.leaf.Leaf}, bundleData: s.cas(), currentData: {s.current.Leaf},
	}
	if s.next != nil {
		keys[nextKeyData], certificates[nextData] = s.next.PrivateKey, []*x509.Certificate{s.next.Leaf}
	}
	if s.previous != nil {
		certificates[previousData] = []*x509.Certificate{s.previous}
	}
	data := map[string][]byte{}
	var err error
	for name, key := range keys {
		if data[name], err = keyutil.MarshalPrivateKeyToPEM(key); err != nil {
			return fmt.Errorf("encoding %q: %w", name, err)
		}
	}
	for name, list := range certificates {
		if data[name], err = cert.EncodeCertificates(list...); err != nil {
			return fmt.Errorf("encoding %q: %w", name, err)
		}
	}
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	for _, name := range []string{nextData, nextKeyData, previousData} {
		delete(secret.Data, name)
	}
	maps.Copy(secret.Data, data)
	rotation.PutTime(secret, currentSinceAnnotation, s.currentSince)
	rotation.PutTime(secret, nextPublishedAnnotation, s.nextPublished)
	return nil
}

// bundle returns the CA certificates to publish.
func (s state) bundle() ([]byte, error) {
	pem, err := cert.EncodeCertificates(s.cas()...)
	if err != nil {
		return nil, fmt.Errorf("encoding the CA bundle: %w", err)
	}
	return pem, nil
}
