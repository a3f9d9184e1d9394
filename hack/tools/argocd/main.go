// SPDX-License-Identifier: Apache-2.0

// Argocd runs the steps of Argo CD's application controller on objects, with Argo CD's own code: it tracks them for an Application, applies
// them, compares them with the stored objects, assesses their health and reads their hooks. Tests run it as a separate program, because
// Argo CD and Heirloom need different releases of the Kubernetes libraries.
//
// It reads one request from standard input and writes one answer to standard output, both in JSON.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// request is the request of a test.
type request struct {
	// Do is apply, diff, health or hooks.
	Do string `json:"do"`
	// Kubeconfig is the path of an administrator's kubeconfig.
	Kubeconfig string `json:"kubeconfig"`
	// Application owns the objects: its sync options, compare options and ignoreDifferences count.
	Application v1alpha1.Application `json:"application"`
	// Settings are the data of the ConfigMap argocd-cm.
	Settings map[string]string `json:"settings"`
	// Objects are the manifests, as they are in Git; for health, the objects as they are stored.
	Objects []*unstructured.Unstructured `json:"objects"`
}

// answer is about one object.
type answer struct {
	// Modified says that the object is out of sync; Predicted is the result of a sync of Live.
	Modified  bool            `json:"modified"`
	Live      json.RawMessage `json:"live,omitempty"`
	Predicted json.RawMessage `json:"predicted,omitempty"`
	// Health and Message are empty if Argo CD does not assess the kind.
	Health  string `json:"health,omitempty"`
	Message string `json:"message,omitempty"`
	// Hook says that no sync applies the object; Phases has the phases in which a sync runs it as a hook.
	Hook     bool     `json:"hook"`
	Phases   []string `json:"phases,omitempty"`
	Wave     int      `json:"wave"`
	Deletion []string `json:"deletion,omitempty"`
}

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	decoder := json.NewDecoder(os.Stdin)
	decoder.DisallowUnknownFields() // also in the Application
	var r request
	if err := decoder.Decode(&r); err != nil {
		return fmt.Errorf("reading the request: %w", err)
	}
	judge, err := newController(ctx, r)
	if err != nil {
		return err
	}
	does := map[string]func(context.Context, []*unstructured.Unstructured) ([]answer, error){
		"apply": judge.apply, "diff": judge.diff, "health": judge.health, "hooks": judge.hooks,
	}
	do := does[r.Do]
	if do == nil {
		return fmt.Errorf("there is no %q", r.Do)
	}
	answers, err := do(ctx, r.Objects)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(answers); err != nil {
		return fmt.Errorf("writing the answer: %w", err)
	}
	return nil
}
