// SPDX-License-Identifier: Apache-2.0

package clusterapi

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/heirloom-dev/heirloom/test/controlplane"
)

// endpoint is the address at which a manager serves its webhooks.
type endpoint struct {
	url string
	ca  []byte
}

// webhooks reads a provider's webhook configurations and sets the endpoint as their address. In a release, a kustomization makes their
// names unique; here the name of the provider does.
func webhooks(file, name string, server endpoint) ([]unstructured.Unstructured, error) {
	objects, err := read(file)
	if err != nil {
		return nil, err
	}
	for _, object := range objects {
		object.SetName("cluster-api-" + name)
		hooks, _, err := unstructured.NestedSlice(object.Object, "webhooks")
		if err != nil {
			return nil, fmt.Errorf("reading the webhooks in %s: %w", file, err)
		}
		for _, hook := range hooks {
			hook, _ := hook.(map[string]any)
			path, _, err := unstructured.NestedString(hook, "clientConfig", "service", "path")
			if err != nil {
				return nil, fmt.Errorf("reading the path of a webhook in %s: %w", file, err)
			}
			hook["clientConfig"] = map[string]any{"url": server.url + path, "caBundle": base64.StdEncoding.EncodeToString(server.ca)}
		}
		object.Object["webhooks"] = hooks
	}
	return objects, nil
}

// convertAt sets the endpoint as the conversion webhook of all kinds with several versions, and adds the labels by which Cluster API
// finds the version for each contract. In a release, a kustomization also does this.
func convertAt(ctx context.Context, admin client.Client, bases string, server endpoint) error {
	read := envtest.CRDInstallOptions{Paths: []string{bases}, ErrorIfPathMissing: true}
	if err := envtest.ReadCRDFiles(&read); err != nil {
		return fmt.Errorf("reading CRDs: %w", err)
	}
	conversion, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"labels": map[string]string{
			clusterv1.GroupVersion.Group + "/v1beta1": "v1beta1", clusterv1.GroupVersion.Group + "/v1beta2": "v1beta2",
		}},
		"spec": map[string]any{"conversion": apiextensionsv1.CustomResourceConversion{
			Strategy: apiextensionsv1.WebhookConverter,
			Webhook: &apiextensionsv1.WebhookConversion{
				ConversionReviewVersions: []string{"v1"},
				ClientConfig:             &apiextensionsv1.WebhookClientConfig{URL: ptr.To(server.url + "/convert"), CABundle: server.ca},
			},
		}},
	})
	if err != nil {
		return fmt.Errorf("encoding a patch: %w", err)
	}
	for _, crd := range read.CRDs {
		if len(crd.Spec.Versions) == 1 {
			continue
		}
		if err := admin.Patch(ctx, crd, client.RawPatch(types.MergePatchType, conversion)); err != nil {
			return fmt.Errorf("patching CRD %s: %w", crd.Name, err)
		}
	}
	return nil
}

func read(file string) ([]unstructured.Unstructured, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading a manifest: %w", err)
	}
	objects, err := controlplane.DecodeObjects(string(raw))
	if err != nil {
		return nil, fmt.Errorf("decoding %s: %w", file, err)
	}
	return objects, nil
}
