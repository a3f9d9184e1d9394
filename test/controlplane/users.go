// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"os"

	cmapi "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	"github.com/cert-manager/cert-manager/pkg/util/pki"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// makeCertificates makes a certificate authority and the API server's serving certificate.
func (cp *ControlPlane) makeCertificates() error {
	var err error
	if cp.ca, err = newAuthority(); err != nil {
		return err
	}
	return writeServing(cp.dir, cp.ca, "127.0.0.1", "localhost")
}

// AdminConfig returns a copy of the configuration of a user in group system:masters. Like all configurations of this package, it
// sets no client-side rate limit.
func (cp *ControlPlane) AdminConfig() *rest.Config {
	return rest.CopyConfig(cp.admin)
}

// User returns a configuration with a client certificate for a user in these groups.
func (cp *ControlPlane) User(name string, groups ...string) (*rest.Config, error) {
	spec := cmapi.CertificateSpec{
		CommonName: name, Usages: []cmapi.KeyUsage{cmapi.UsageDigitalSignature, cmapi.UsageClientAuth},
		Subject: &cmapi.X509Subject{Organizations: groups},
	}
	pair, err := issue(spec, cp.ca)
	if err != nil {
		return nil, fmt.Errorf("making a certificate for user %q: %w", name, err)
	}
	key, err := pki.EncodePKCS8PrivateKey(pair.key)
	if err != nil {
		return nil, fmt.Errorf("encoding the key of user %q: %w", name, err)
	}
	return &rest.Config{
		Host: cp.host, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: cp.ca.pem, CertData: pair.pem, KeyData: key},
	}, nil
}

// Kubeconfig returns the configuration of User as the bytes of a kubeconfig file.
func (cp *ControlPlane) Kubeconfig(name string, groups ...string) ([]byte, error) {
	config, err := cp.User(name, groups...)
	if err != nil {
		return nil, err
	}
	const context = "the-only-one"
	kubeconfig := api.NewConfig()
	kubeconfig.Clusters[context] = &api.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	kubeconfig.AuthInfos[context] = &api.AuthInfo{ClientCertificateData: config.CertData, ClientKeyData: config.KeyData}
	kubeconfig.Contexts[context] = &api.Context{Cluster: context, AuthInfo: context}
	kubeconfig.CurrentContext = context
	raw, err := clientcmd.Write(*kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("making a kubeconfig for user %q: %w", name, err)
	}
	return raw, nil
}

// WriteKubeconfig writes the kubeconfig of a user to a file that only its owner can read.
func (cp *ControlPlane) WriteKubeconfig(path, name string, groups ...string) error {
	kubeconfig, err := cp.Kubeconfig(name, groups...)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, kubeconfig, 0o600); err != nil {
		return fmt.Errorf("writing the kubeconfig of user %q: %w", name, err)
	}
	return nil
}
