// SPDX-License-Identifier: Apache-2.0

// Command registrations writes the chart's webhook configurations into a directory, for the kubectl plugin to compare with what is
// registered: default.yaml with the chart's own values, and others.yaml with another for each value that changes them. What differs
// between both is the operator's to choose. go generate runs it.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/test/controlplane"
)

// What stands for an operator's values in others.yaml; the plugin knows them.
const (
	anyNamespace = "any-namespace"
	anyGroup     = "any.group"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return errors.New("usage: registrations DIRECTORY")
	}
	root, err := controlplane.RepositoryRoot(ctx)
	if err != nil {
		return err
	}
	chart := filepath.Join(root, "deploy", "chart", "heirloom")
	others, err := otherValues(chart)
	if err != nil {
		return err
	}
	for name, values := range map[string]map[string]any{"default.yaml": nil, "others.yaml": others} {
		content, err := render(ctx, chart, values)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(args[0], name), content, 0o600); err != nil {
			return fmt.Errorf("writing the webhook configurations: %w", err)
		}
	}
	return nil
}

// render returns the chart's webhook configurations, without what says only which release and version it is.
func render(ctx context.Context, chart string, values map[string]any) ([]byte, error) {
	objects, err := controlplane.RenderChart(ctx, chart, controlplane.ChartOptions{Namespace: "heirloom-system", Values: values})
	if err != nil {
		return nil, err
	}
	content := bytes.NewBufferString("# SPDX-License-Identifier: Apache-2.0\n# Made of the chart by make generate.\n")
	for _, object := range objects {
		if object.GroupVersionKind().Group != "admissionregistration.k8s.io" {
			continue
		}
		bare := unstructured.Unstructured{Object: map[string]any{"webhooks": object.Object["webhooks"]}}
		bare.SetGroupVersionKind(object.GroupVersionKind())
		bare.SetName(object.GetName())
		document, err := yaml.Marshal(bare.Object)
		if err != nil {
			return nil, fmt.Errorf("encoding %s: %w", object.GetKind(), err)
		}
		content.WriteString("---\n")
		content.Write(document)
	}
	return content.Bytes(), nil
}

// otherValues returns another value for each of the chart's that changes webhook configurations, apart from where they lead.
func otherValues(chart string) (map[string]any, error) {
	raw, err := os.ReadFile(filepath.Join(chart, "values.yaml"))
	if err != nil {
		return nil, fmt.Errorf("reading the chart's values: %w", err)
	}
	own := struct {
		Webhooks map[string]any `json:"webhooks"`
	}{}
	if err := yaml.Unmarshal(raw, &own); err != nil {
		return nil, fmt.Errorf("reading the chart's values: %w", err)
	}
	webhooks := map[string]any{}
	for name, values := range own.Webhooks {
		of, _ := values.(map[string]any)
		other := map[string]any{}
		if _, has := of["timeoutSeconds"]; has {
			other["timeoutSeconds"] = 1
		}
		if _, has := of["failurePolicy"]; has {
			other["failurePolicy"] = "Fail"
		}
		if len(other) > 0 {
			webhooks[name] = other
		}
	}
	return map[string]any{"namespace": anyNamespace, "additionalProviderGroups": []any{anyGroup}, "webhooks": webhooks}, nil
}
