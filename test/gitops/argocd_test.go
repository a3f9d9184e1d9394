// SPDX-License-Identifier: Apache-2.0

package gitops

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"strings"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// argo is an Application of Argo CD.
type argo struct {
	// application is the manifest of the Application; settings are the data of argocd-cm.
	application map[string]any
	settings    map[string]string
}

// application returns an Application with these sync options and compare options.
func application(syncOptions []any, compareOptions string) map[string]any {
	return map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
		"metadata": map[string]any{
			"name": "fleet", "namespace": "argocd",
			"annotations": map[string]any{"argocd.argoproj.io/compare-options": compareOptions},
		},
		"spec": map[string]any{
			"project": "default", "destination": map[string]any{"namespace": "fleet"},
			"syncPolicy": map[string]any{"syncOptions": syncOptions},
		},
	}
}

// verdict is the program's answer about an object.
type verdict struct {
	Modified        bool `json:"modified"`
	Live, Predicted json.RawMessage
	Health, Message string
	Hook            bool
	Phases          []string
	Wave            int
	Deletion        []string
}

func (a argo) ask(s *scene, do string, objects []*unstructured.Unstructured) []verdict {
	s.t.Helper()
	raw, err := json.Marshal(map[string]any{
		"do": do, "kubeconfig": s.kubeconfig, "application": a.application, "settings": a.settings, "objects": contents(objects),
	})
	s.Expect(err).NotTo(HaveOccurred())
	var stdout, stderr bytes.Buffer
	command := exec.CommandContext(s.ctx, argoCD)
	command.Stdin, command.Stdout, command.Stderr = bytes.NewReader(raw), &stdout, &stderr
	s.Expect(command.Run()).To(Succeed(), "%s", &stderr)
	var verdicts []verdict
	s.Expect(json.Unmarshal(stdout.Bytes(), &verdicts)).To(Succeed(), "%s", &stdout)
	s.Expect(verdicts).To(HaveLen(len(objects)))
	return verdicts
}

func contents(objects []*unstructured.Unstructured) []map[string]any {
	var all []map[string]any
	for _, o := range objects {
		all = append(all, o.Object)
	}
	return all
}

func (a argo) apply(s *scene, objects []*unstructured.Unstructured) []string {
	s.t.Helper()
	a.ask(s, "apply", objects)
	return nil
}

func (a argo) drift(s *scene, objects []*unstructured.Unstructured) []string {
	s.t.Helper()
	var drifted []string
	for i, v := range a.ask(s, "diff", objects) {
		if v.Modified {
			drifted = append(drifted, objects[i].GetKind()+" "+objects[i].GetName()+"\nis:    "+string(v.Live)+"\nwould: "+string(v.Predicted))
		}
	}
	return drifted
}

func (argo) tracks(key string) bool {
	return strings.Contains(key, "argocd.argoproj.io") || key == "app.kubernetes.io/instance" || strings.Contains(key, "last-applied")
}
