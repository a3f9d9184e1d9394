// SPDX-License-Identifier: Apache-2.0
//go:build linux

package cluster

import (
	"embed"
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

// settings are the values that the configuration files of a run need.
type settings struct {
	Dir, PauseImage, PluginDir, ProviderID, ControlGroup, DNSService string
}

// writeConfig writes the configuration files of the Node's programs into the directory of the run.
func writeConfig(dir string) error {
	values := settings{
		Dir: dir, PauseImage: PauseImage, PluginDir: pluginDir, ProviderID: ProviderID, ControlGroup: controlGroup(dir),
		DNSService: dnsServiceIP,
	}
	for name, target := range map[string]string{
		"containerd.toml": "containerd.toml",
		"kubelet.yaml":    "kubelet.yaml",
		"cni.json":        "cni/10-pods.conflist",
	} {
		if err := writeTemplate(filepath.Join("config", name), filepath.Join(dir, target), values); err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
	}
	return nil
}

func writeTemplate(source, target string, values settings) error {
	parsed, err := template.ParseFS(configFiles, source)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
		return err
	}
	file, err := os.Create(target)
	if err != nil {
		return err
	}
	if err := parsed.Execute(file, values); err != nil {
		return err
	}
	return file.Close()
}
