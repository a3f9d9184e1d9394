// SPDX-License-Identifier: Apache-2.0

package scenes

import (
	"context"
	"encoding/json"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/stage"
)

const (
	infrastructureGroup = "infrastructure.cluster.x-k8s.io"
	bootstrapGroup      = "bootstrap.cluster.x-k8s.io"
	controlPlaneGroup   = "controlplane.cluster.x-k8s.io"
)

// provided returns an object of a provider. No provider runs: a scene does its work where needed.
func provided(group, kind, name string, spec map[string]any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	object.SetAPIVersion(group + "/v1beta2")
	object.SetKind(kind)
	object.SetNamespace(namespace)
	object.SetName(name)
	object.SetLabels(map[string]string{clusterv1.ClusterNameLabel: namespace})
	return object
}

// reference returns a reference to the only object of a kind.
func reference(group, kind string) clusterv1.ContractVersionedObjectReference {
	return clusterv1.ContractVersionedObjectReference{APIGroup: group, Kind: kind, Name: namespace}
}

func inTemplate(spec map[string]any) map[string]any {
	return map[string]any{"template": map[string]any{"spec": spec}}
}

func inCluster(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: namespace}}
}

// acceptBootstrap adds the label by which Cluster API finds the contract's version to the kinds of the bootstrap provider.
func (w *world) acceptBootstrap(ctx context.Context) error {
	scheme := stage.Scheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		return fmt.Errorf("adding the types of CRDs: %w", err)
	}
	c, err := client.New(w.AdminConfig(), client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("making an administrator's client: %w", err)
	}
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{"%s/v1beta2":"v1beta2"}}}`, clusterv1.GroupVersion.Group)
	for _, plural := range []string{"kubeadmconfigs", "kubeadmconfigtemplates"} {
		crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: plural + "." + bootstrapGroup}}
		if err := c.Patch(ctx, crd, client.RawPatch(types.MergePatchType, patch)); err != nil {
			return fmt.Errorf("labelling CRD %s: %w", crd.Name, err)
		}
	}
	return nil
}

// patchStatus writes a part of an object's status as its provider.
func (w *world) patchStatus(ctx context.Context, object *unstructured.Unstructured, status map[string]any) error {
	raw, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return fmt.Errorf("encoding a status: %w", err)
	}
	if err := w.Client.Status().Patch(ctx, object.DeepCopy(), client.RawPatch(types.MergePatchType, raw)); err != nil {
		return fmt.Errorf("writing the status of %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return nil
}

// provide acts as the providers of a Machine: it reports that the bootstrap data and the infrastructure are ready. Both objects have the
// Machine's name.
func (w *world) provide(ctx context.Context, machine string) error {
	err := w.patchStatus(ctx, provided(bootstrapGroup, "KubeadmConfig", machine, nil), map[string]any{
		"dataSecretName": machine, "initialization": map[string]any{"dataSecretCreated": true},
	})
	if err != nil {
		return err
	}
	infra := provided(infrastructureGroup, "FakeMachine", machine, nil)
	patch := fmt.Appendf(nil, `{"spec":{"providerID":%q}}`, stage.ProviderID(machine))
	if err := w.Client.Patch(ctx, infra.DeepCopy(), client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("giving FakeMachine %s its providerID: %w", machine, err)
	}
	return w.patchStatus(ctx, infra, map[string]any{"ready": true, "initialization": map[string]any{"provisioned": true}})
}
