// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"k8s.io/client-go/util/cert"
)

// ServingCertificate writes tls.crt, tls.key and ca.crt into a directory, like a mounted Secret of cert-manager, with a certificate for
// these DNS names and IP addresses. Each call makes a new certificate authority and returns its certificate.
func ServingCertificate(dir string, hosts ...string) (caPEM []byte, err error) {
	var ips []net.IP
	var names []string
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			ips = append(ips, ip)
		} else {
			names = append(names, host)
		}
	}
	chain, key, err := cert.GenerateSelfSignedCertKey(hosts[0], ips, names)
	if err != nil {
		return nil, fmt.Errorf("making a serving certificate: %w", err)
	}
	leaf, ca := pem.Decode(chain) // the certificate of the authority follows
	for name, content := range map[string][]byte{"tls.crt": pem.EncodeToMemory(leaf), "tls.key": key, "ca.crt": ca} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return nil, fmt.Errorf("writing a serving certificate: %w", err)
		}
	}
	return ca, nil
}
