// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	releaseName  = "heirloom"
	fieldManager = "helm"
)

// ChartOptions says how a chart is rendered.
type ChartOptions struct {
	// Namespace is the release's.
	Namespace string
	// Values go over the chart's own values.
	Values map[string]any
	// Hooks adds what Helm creates for a moment only, such as before it uninstalls.
	Hooks bool
}

// RenderChart returns what "helm install" of a chart would create to stay, as a release named heirloom.
func RenderChart(ctx context.Context, chartDir string, options ChartOptions) ([]unstructured.Unstructured, error) {
	values, err := json.Marshal(options.Values) // JSON is YAML
	if err != nil {
		return nil, fmt.Errorf("encoding the values of chart %s: %w", chartDir, err)
	}
	args := []string{"template", releaseName, chartDir, "--namespace", options.Namespace, "--values", "-"}
	if !options.Hooks {
		args = append(args, "--no-hooks")
	}
	stdout, _, err := run(ctx, bytes.NewReader(values), "helm", args...)
	if err != nil {
		return nil, err
	}
	objects, err := DecodeObjects(stdout)
	if err != nil {
		return nil, fmt.Errorf("decoding chart %s: %w", chartDir, err)
	}
	return objects, nil
}

// DecodeObjects returns the objects of a YAML file that has a document for each.
func DecodeObjects(manifest string) ([]unstructured.Unstructured, error) {
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(manifest), 4096)
	var objects []unstructured.Unstructured
	for {
		var object unstructured.Unstructured
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		// A template whose condition is false leaves an empty document.
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}

// Apply applies objects by server-side apply, each after those that it needs.
func Apply(ctx context.Context, c client.Client, objects []unstructured.Unstructured) error {
	sorted := slices.Clone(objects)
	slices.SortStableFunc(sorted, func(a, b unstructured.Unstructured) int {
		return cmp.Compare(rank(a.GetKind()), rank(b.GetKind()))
	})
	for i := range sorted {
		// The client writes the answer into what it is given, which is the caller's.
		object := sorted[i].DeepCopy()
		err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner(fieldManager), client.ForceOwnership)
		if err != nil {
			return fmt.Errorf("applying %s %s: %w", object.GetKind(), client.ObjectKeyFromObject(object), err)
		}
	}
	return nil
}

// rank orders kinds: first what others live in, last what begins to judge requests.
func rank(kind string) int {
	switch kind {
	case "Namespace":
		return 0
	case "CustomResourceDefinition":
		return 1
	case "ValidatingAdmissionPolicy", "MutatingAdmissionPolicy":
		return 3
	case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration",
		"ValidatingAdmissionPolicyBinding", "MutatingAdmissionPolicyBinding":
		return 4
	default:
		return 2
	}
}
