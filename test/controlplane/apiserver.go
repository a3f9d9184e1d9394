// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// startServer starts a kube-apiserver that stores its objects in the etcd at the URL etcd.
func (cp *ControlPlane) startServer(ctx context.Context, etcd string, options Options) error {
	path, err := options.program("kube-apiserver")
	if err != nil {
		return err
	}
	port, err := FreePort()
	if err != nil {
		return err
	}
	cp.host = fmt.Sprintf("https://127.0.0.1:%d", port)
	flags := cp.serverFlags(etcd, port)
	if options.AuditLog != "" {
		policy, err := writeAuditPolicy(options.AuditLog)
		if err != nil {
			return err
		}
		flags["audit-log-path"], flags["audit-policy-file"] = []string{options.AuditLog}, []string{policy}
	}
	maps.Copy(flags, options.APIServerArgs)
	var args []string
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		for _, value := range flags[name] {
			args = append(args, "--"+name+"="+value)
		}
	}
	cp.server, err = StartProcess(context.WithoutCancel(ctx), path, args, filepath.Join(options.LogDir, "kube-apiserver.log"))
	return err
}

func (cp *ControlPlane) serverFlags(etcd string, port int) map[string][]string {
	flags := map[string][]string{}
	for name, value := range map[string]string{
		"etcd-servers":             etcd,
		"bind-address":             "127.0.0.1",
		"secure-port":              fmt.Sprint(port),
		"cert-dir":                 cp.dir,
		"tls-cert-file":            cp.file("tls.crt"),
		"tls-private-key-file":     cp.file("tls.key"),
		"client-ca-file":           cp.file("ca.crt"),
		"service-cluster-ip-range": "10.0.0.0/24",
		"service-account-issuer":   cp.host + "/",
		// Any key will do.
		"service-account-key-file":         cp.file("tls.crt"),
		"service-account-signing-key-file": cp.file("tls.key"),
		"allow-privileged":                 "true",
		"authorization-mode":               "Node,RBAC",
		"enable-admission-plugins":         "NodeRestriction",
		// The plugin needs the controller that creates a ServiceAccount in each namespace.
		"disable-admission-plugins": "ServiceAccount",
		"profiling":                 "false",
	} {
		flags[name] = []string{value}
	}
	return flags
}

func (cp *ControlPlane) file(name string) string {
	return filepath.Join(cp.dir, name)
}

// writeAuditPolicy writes an audit policy with one line per finished request next to the log and returns its path.
func writeAuditPolicy(log string) (string, error) {
	const policy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]\n"
	path := log + ".policy.yaml"
	if err := os.WriteFile(path, []byte(policy), 0o600); err != nil {
		return "", fmt.Errorf("writing the audit policy: %w", err)
	}
	return path, nil
}
