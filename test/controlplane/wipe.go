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
	"net/http"
	"slices"
	"strings"
)

// Keys returns the keys of all objects in etcd, such as /registry/cluster.x-k8s.io/machines/default/one.
func (cp *ControlPlane) Keys(context.Context) ([]string, error) {
	return cp.keysSince(0)
}

// keysSince returns the keys of all objects that were created since a revision of etcd.
func (cp *ControlPlane) keysSince(revision int64) ([]string, error) {
	var found struct {
		KVs []struct{ Key []byte } `json:"kvs"`
	}
	err := cp.askEtcd("range", map[string]any{
		"key": []byte("/registry/"), "range_end": []byte("/registry0"), "keys_only": true, "min_create_revision": revision,
	}, &found)
	keys := make([]string, 0, len(found.KVs))
	for _, kv := range found.KVs {
		keys = append(keys, string(kv.Key))
	}
	return keys, err
}

// remember makes the objects that etcd stores now survive Wipe.
func (cp *ControlPlane) remember() error {
	var now struct {
		Header struct {
			Revision int64 `json:"revision,string"`
		}
	}
	err := cp.askEtcd("range", map[string]any{"key": []byte("/registry/")}, &now)
	cp.initial = now.Header.Revision
	return err
}

// askEtcd uses etcd's JSON interface, in which keys are base64.
func (cp *ControlPlane) askEtcd(what string, question, answer any) error {
	body, err := json.Marshal(question)
	if err != nil {
		return err
	}
	url := cp.env.ControlPlane.Etcd.URL.JoinPath("v3", "kv", what)
	response, err := http.Post(url.String(), "application/json", bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("asking etcd: %w", err)
	}
	raw, err := io.ReadAll(response.Body) // to the end, so that the connection is used again
	if response.StatusCode != http.StatusOK {
		err = errors.Join(err, fmt.Errorf("asking etcd: %s", response.Status))
	}
	return cmp.Or(errors.Join(err, response.Body.Close()), json.Unmarshal(raw, answer))
}

// Wipe stops the kubelets that still run and deletes all objects except CRDs and the objects from the start. It deletes them in etcd,
// without webhooks, finalizers and controllers; watches see the deletions. No other client may write at the same time.
func (cp *ControlPlane) Wipe(context.Context) error {
	if err := cp.stopKubelets(); err != nil {
		return err
	}
	keys, err := cp.keysSince(cp.initial + 1)
	if err != nil {
		return fmt.Errorf("wiping a control plane: %w", err)
	}
	for _, key := range keys {
		if ofServer(key) {
			continue
		}
		if err := cp.askEtcd("deleterange", map[string]any{"key": []byte(key)}, &struct{}{}); err != nil {
			return fmt.Errorf("wiping a control plane: %w", err)
		}
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
