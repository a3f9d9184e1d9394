// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
)

// Served asks a server for its certificates. They are not verified here: the check does that, to say what is wrong with them.
func Served(ctx context.Context, address, serverName string) ([]*x509.Certificate, error) {
	dialer := tls.Dialer{Config: &tls.Config{
		ServerName: serverName, MinVersion: tls.VersionTLS12,
		InsecureSkipVerify: true, //nolint:gosec // nothing is sent, and the check verifies what is answered
	}}
	if net.ParseIP(serverName) != nil {
		dialer.Config.ServerName = ""
	}
	connection, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	defer connection.Close() //nolint:errcheck // nothing was written
	client, isTLS := connection.(*tls.Conn)
	if !isTLS || len(client.ConnectionState().PeerCertificates) == 0 {
		return nil, errors.New("it serves no certificate")
	}
	return client.ConnectionState().PeerCertificates, nil
}
