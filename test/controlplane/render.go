// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	release "helm.sh/helm/v4/pkg/release/v1/util"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const releaseName = "heirloom"

// ChartOptions are the options for rendering a chart.
type ChartOptions struct {
	// Namespace is the namespace of the release.
	Namespace string
	// Values override the chart's own values.
	Values map[string]any
	// Hooks adds the chart's hooks, which Helm creates only for a short time, for example before it uninstalls.
	Hooks bool
}

// RenderChart returns the permanent objects of "helm install" of a chart, for a release named heirloom. Helm's own packages render
// them, because building the helm command takes longer than everything else in the demo; a test in test/chart compares both. It does
// not support charts with dependencies.
func RenderChart(_ context.Context, chartDir string, options ChartOptions) ([]unstructured.Unstructured, error) {
	manifest, err := renderManifest(chartDir, options)
	if err != nil {
		return nil, fmt.Errorf("rendering chart %s: %w", chartDir, err)
	}
	objects, err := DecodeObjects(manifest)
	if err != nil {
		return nil, fmt.Errorf("decoding chart %s: %w", chartDir, err)
	}
	return objects, nil
}

func renderManifest(chartDir string, options ChartOptions) (string, error) {
	encoded, err := json.Marshal(options.Values) // JSON is YAML
	if err != nil {
		return "", fmt.Errorf("encoding the values: %w", err)
	}
	values, err := loader.LoadValues(bytes.NewReader(encoded))
	if err != nil {
		return "", fmt.Errorf("reading the values: %w", err)
	}
	chart, err := loader.Load(chartDir)
	if err != nil {
		return "", err
	}
	all, err := util.ToRenderValues(chart, values, common.ReleaseOptions{
		Name: releaseName, Namespace: options.Namespace, Revision: 1, IsInstall: true,
	}, nil)
	if err != nil {
		return "", err
	}
	files, err := engine.Render(chart, all)
	if err != nil {
		return "", err
	}
	maps.DeleteFunc(files, func(name, _ string) bool { return strings.HasSuffix(name, "NOTES.txt") })
	hooks, manifests, err := release.SortManifests(files, nil, release.InstallOrder)
	if err != nil {
		return "", err
	}
	var documents []string
	for _, m := range manifests {
		documents = append(documents, m.Content)
	}
	if options.Hooks {
		for _, h := range hooks {
			documents = append(documents, h.Manifest)
		}
	}
	return strings.Join(documents, "\n---\n"), nil
}
