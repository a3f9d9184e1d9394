// SPDX-License-Identifier: Apache-2.0
//go:build linux

package cluster

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"text/template"
)

const (
	// PauseImage does nothing until a signal ends it.
	PauseImage = "heirloom.test/pause:latest"
	pluginDir  = "/usr/lib/cni" // where the package containernetworking-plugins has them
	serviceIPs = "10.96.0.0/16"
	// apiServiceIP is the first Service address, which the Service "kubernetes" gets.
	apiServiceIP = "10.96.0.1"
	dnsServiceIP = "10.96.0.10"
)

//go:embed config
var configFiles embed.FS

// writeConfig writes the configuration files of the Node's programs into the directory of the run.
func writeConfig(dir string) error {
	values := map[string]string{
		"Dir": dir, "PauseImage": PauseImage, "PluginDir": pluginDir, "ProviderID": ProviderID, "ControlGroup": controlGroup(dir),
		"DNSService": dnsServiceIP,
	}
	parsed, err := template.New("").Option("missingkey=error").ParseFS(configFiles, "config/*")
	if err != nil {
		return fmt.Errorf("reading the configuration files: %w", err)
	}
	for name, target := range map[string]string{
		"containerd.toml": "containerd.toml",
		"kubelet.yaml":    "kubelet.yaml",
		"cni.json":        "cni/10-pods.conflist",
	} {
		var content bytes.Buffer
		target = filepath.Join(dir, target)
		err := errors.Join(parsed.ExecuteTemplate(&content, name, values), os.MkdirAll(filepath.Dir(target), 0o700))
		if err = errors.Join(err, os.WriteFile(target, content.Bytes(), 0o600)); err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
	}
	return nil
}
