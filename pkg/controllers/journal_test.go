// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// journal records events, one line for each.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) note(line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line)
}

// take returns the lines since the last call, and removes them.
func (j *journal) take() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	lines := j.lines
	j.lines = nil
	return lines
}

// all returns the lines and keeps them.
func (j *journal) all() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.lines)
}

// recorder notes Events as "<type> <reason> <kind>/<name>: <note>".
type recorder struct {
	journal
	scheme *runtime.Scheme
}

// Eventf implements events.EventRecorder.
func (r *recorder) Eventf(regarding, _ runtime.Object, eventType, reason, action, note string, args ...any) {
	kind, name := regarding.GetObjectKind().GroupVersionKind().Kind, ""
	if gvks, _, err := r.scheme.ObjectKinds(regarding); kind == "" && err == nil {
		kind = gvks[0].Kind
	}
	if object, err := meta.Accessor(regarding); err == nil {
		name = object.GetName()
	}
	r.note(fmt.Sprintf("%s %s %s/%s: %s", eventType, reason, kind, name, fmt.Sprintf(note, args...)))
}

// describeApply returns "<field manager> applies <kind> <namespace>/<name>@<version> <body>".
func describeApply(t *testing.T, config runtime.ApplyConfiguration, options []client.ApplyOption) string {
	t.Helper()
	Expect := NewWithT(t).Expect
	raw, err := json.Marshal(config)
	Expect(err).NotTo(HaveOccurred())
	body := map[string]any{}
	Expect(json.Unmarshal(raw, &body)).To(Succeed())
	chosen := (&client.ApplyOptions{}).ApplyOptions(options)
	Expect(chosen.Force).To(HaveValue(BeTrue()), "an owner is authoritative")
	kind := body["kind"]
	delete(body, "kind")
	delete(body, "apiVersion")
	return fmt.Sprintf("%s applies %s %s", chosen.FieldManager, kind, describeBody(t, "", "", body))
}

// describePatch returns a merge patch in the form of an apply. Of a JSON patch, it returns the operations outside managed fields.
func describePatch(t *testing.T, kind string, object client.Object, patch client.Patch, options []client.PatchOption) string {
	t.Helper()
	Expect := NewWithT(t).Expect
	raw, err := patch.Data(object)
	Expect(err).NotTo(HaveOccurred())
	manager := (&client.PatchOptions{}).ApplyOptions(options).FieldManager
	if patch.Type() == types.MergePatchType {
		body := map[string]any{}
		Expect(json.Unmarshal(raw, &body)).To(Succeed())
		return strings.TrimSpace(fmt.Sprintf("%s patches %s %s", manager, kind, describeBody(t, object.GetNamespace(), object.GetName(), body)))
	}
	Expect(patch.Type()).To(Equal(types.JSONPatchType))
	var operations []struct {
		Op, Path string
		Value    any
	}
	Expect(json.Unmarshal(raw, &operations)).To(Succeed())
	version, lines := "", []string{}
	for _, operation := range operations {
		switch {
		case operation.Path == "/metadata/resourceVersion":
			version = fmt.Sprint(operation.Value)
		case !strings.HasPrefix(operation.Path, "/metadata/managedFields"):
			lines = append(lines, strings.TrimSuffix(fmt.Sprintf(" %s %s %v", operation.Op, operation.Path, operation.Value), " <nil>"))
		}
	}
	return fmt.Sprintf("%s patches %s %s/%s@%s%s", manager, kind, object.GetNamespace(), object.GetName(), version, strings.Join(lines, ","))
}

// describeBody returns the object of a write, and the rest of the body as JSON.
func describeBody(t *testing.T, namespace, name string, body map[string]any) string {
	t.Helper()
	Expect := NewWithT(t).Expect
	metadata, ok := body["metadata"].(map[string]any)
	Expect(ok).To(BeTrue())
	take := func(field string, otherwise string) string {
		value, ok := metadata[field].(string)
		if !ok {
			return otherwise
		}
		delete(metadata, field)
		return value
	}
	namespace, name = take("namespace", namespace), take("name", name)
	version, _ := take("resourceVersion", ""), take("uid", "")
	if len(metadata) == 0 {
		delete(body, "metadata")
	}
	raw, err := json.Marshal(body)
	Expect(err).NotTo(HaveOccurred())
	return fmt.Sprintf("%s/%s@%s %s", namespace, name, version, raw)
}

// transfer copies an object into another of its kind.
func transfer(t *testing.T, from, into client.Object) {
	t.Helper()
	raw, err := json.Marshal(from)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(json.Unmarshal(raw, into)).To(Succeed())
}

// samplesOf returns the metrics as "name{label="value",...} value", without the prefix heirloom_.
func samplesOf(t *testing.T, registry *prometheus.Registry) []string {
	t.Helper()
	Expect := NewWithT(t).Expect
	families, err := registry.Gather()
	Expect(err).NotTo(HaveOccurred())
	var lines []string
	for _, family := range families {
		var text strings.Builder
		_, err := expfmt.MetricFamilyToText(&text, family)
		Expect(err).NotTo(HaveOccurred())
		for line := range strings.Lines(text.String()) {
			if sample, ok := strings.CutPrefix(line, "heirloom_"); ok {
				lines = append(lines, strings.TrimSpace(sample))
			}
		}
	}
	return lines
}
