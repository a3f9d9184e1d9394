// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/heirloom-dev/heirloom/test/controlplane"
)

// InstallWebhooks applies the chart's webhook configurations with the webhooks at that URL: the stage's own program's, or a
// replica's, to which a Service would lead.
func (s *Stage) InstallWebhooks(ctx context.Context, url string) error {
	configurations := make([]unstructured.Unstructured, 0, len(s.webhooks))
	for _, configuration := range s.webhooks {
		configuration = *configuration.DeepCopy()
		hooks, _, err := unstructured.NestedSlice(configuration.Object, "webhooks")
		if err != nil {
			return fmt.Errorf("reading the webhooks of %s: %w", configuration.GetName(), err)
		}
		for _, hook := range hooks {
			hook, _ := hook.(map[string]any)
			at, _, err := unstructured.NestedString(hook, "clientConfig", "url")
			if err == nil {
				err = unstructured.SetNestedField(hook, url+strings.TrimPrefix(at, s.WebhookURL), "clientConfig", "url")
			}
			if err != nil {
				return fmt.Errorf("moving the webhooks of %s: %w", configuration.GetName(), err)
			}
		}
		configuration.Object["webhooks"] = hooks
		configurations = append(configurations, configuration)
	}
	return controlplane.Apply(ctx, s.Client, configurations)
}

// RemoveWebhooks deletes the chart's webhook configurations.
func (s *Stage) RemoveWebhooks(ctx context.Context) error {
	for i := range s.webhooks {
		if err := s.Client.Delete(ctx, s.webhooks[i].DeepCopy()); err != nil {
			return fmt.Errorf("deleting %s: %w", s.webhooks[i].GetName(), err)
		}
	}
	return nil
}

func isWebhookConfiguration(object unstructured.Unstructured) bool {
	return object.GroupVersionKind().Group == "admissionregistration.k8s.io"
}

// failClosed changes all webhooks of a configuration, see Options.FailClosed. The chart has no values for that.
func failClosed(configuration unstructured.Unstructured) {
	hooks, _ := configuration.Object["webhooks"].([]any)
	for _, hook := range hooks {
		if hook, ok := hook.(map[string]any); ok {
			hook["failurePolicy"], hook["timeoutSeconds"] = "Fail", int64(30)
		}
	}
}
