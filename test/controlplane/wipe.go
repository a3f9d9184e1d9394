// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// store is an etcd with its JSON interface, in which keys are base64.
type store struct{ url string }

// keys returns the keys of all objects.
func (s store) keys(ctx context.Context) ([]string, error) {
	var found struct {
		KVs []struct{ Key []byte } `json:"kvs"`
	}
	everything := map[string]any{"key": []byte("/registry/"), "range_end": []byte("/registry0"), "keys_only": true}
	if err := s.do(ctx, "range", everything, &found); err != nil {
		return nil, err
	}
	keys := make([]string, 0, len(found.KVs))
	for _, kv := range found.KVs {
		keys = append(keys, string(kv.Key))
	}
	return keys, nil
}

func (s store) remove(ctx context.Context, keys []string) error {
	for some := range slices.Chunk(keys, 100) { // etcd refuses more than 128 in one transaction
		operations := make([]any, 0, len(some))
		for _, key := range some {
			operations = append(operations, map[string]any{"request_delete_range": map[string]any{"key": []byte(key)}})
		}
		if err := s.do(ctx, "txn", map[string]any{"success": operations}, nil); err != nil {
			return err
		}
	}
	return nil
}

func (s store) do(ctx context.Context, what string, question, answer any) error {
	body, err := json.Marshal(question)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v3/kv/"+what, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("asking etcd: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return errors.Join(fmt.Errorf("asking etcd: %s", response.Status), response.Body.Close())
	}
	if answer != nil {
		err = json.NewDecoder(response.Body).Decode(answer)
	}
	return errors.Join(err, response.Body.Close())
}

// Keys returns the keys of all objects in etcd, such as /registry/cluster.x-k8s.io/machines/default/one.
func (cp *ControlPlane) Keys(ctx context.Context) ([]string, error) {
	return cp.store.keys(ctx)
}

// Wipe stops the kubelets that still run and deletes all objects except CRDs and the objects from the start. It deletes them in etcd,
// without webhooks, finalizers and controllers; watches see the deletions. No other client may write at the same time.
func (cp *ControlPlane) Wipe(ctx context.Context) error {
	if err := cp.stopKubelets(); err != nil {
		return err
	}
	keys, err := cp.store.keys(ctx)
	if err != nil {
		return fmt.Errorf("wiping a control plane: %w", err)
	}
	keys = slices.DeleteFunc(keys, func(key string) bool { return cp.initial[key] || ofServer(key) })
	if err := cp.store.remove(ctx, keys); err != nil {
		return fmt.Errorf("wiping a control plane: %w", err)
	}
	return nil
}

// ofServer reports whether the API server itself may store an object with this key at any time.
func ofServer(key string) bool {
	return slices.ContainsFunc([]string{
		"apiextensions.k8s.io/", "apiregistration.k8s.io/", "leases/kube-system/apiserver-", "masterleases/", "peerserverleases/", "ranges/",
		"services/specs/default/kubernetes", "services/endpoints/default/kubernetes", "endpointslices/default/kubernetes", "ipaddresses/",
		"servicecidrs/",
	}, func(prefix string) bool { return strings.HasPrefix(key, "/registry/"+prefix) })
}

// remember records the keys that etcd stores from the start.
func (cp *ControlPlane) remember(ctx context.Context) error {
	keys, err := cp.store.keys(ctx)
	if err != nil {
		return fmt.Errorf("looking for what is there: %w", err)
	}
	cp.initial = map[string]bool{}
	for _, key := range keys {
		cp.initial[key] = true
	}
	return nil
}
