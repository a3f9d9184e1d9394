// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	. "github.com/onsi/gomega"
	"github.com/prometheus/common/expfmt"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
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
func (r *recorder) Eventf(regarding, _ runtime.Object, eventType, reason, _, note string, args ...any) {
	gvk, _ := apiutil.GVKForObject(regarding, r.scheme)
	object, _ := meta.Accessor(regarding)
	r.note(fmt.Sprintf("%s %s %s/%s: %s", eventType, reason, gvk.Kind, object.GetName(), fmt.Sprintf(note, args...)))
}

// wrote expects exactly these writes since the last call, each as "<verb> <kind>/<name>".
func (l *loop) wrote(writes ...string) {
	l.t.Helper()
	l.Expect(l.writes.take()).To(Equal(writes), "writes")
}

// told expects exactly these Events since the last call, each by its beginning.
func (l *loop) told(events ...string) {
	l.t.Helper()
	told := l.events.take()
	l.Expect(told).To(HaveLen(len(events)), "Events")
	for i, event := range events {
		l.Expect(told[i]).To(HavePrefix(event))
	}
}

// counted expects metrics, as "name{label=value,...} value" without the prefix heirloom_. notCounted expects no metric with this prefix.
func (l *loop) counted(samples ...string) {
	l.t.Helper()
	l.Expect(l.samples()).To(ContainElements(samples))
}

func (l *loop) notCounted(sample string) {
	l.t.Helper()
	l.Expect(l.samples()).NotTo(ContainElement(HavePrefix(sample)))
}

// samples returns the metrics, as in counted, and the number of all waiting Nodes.
func (l *loop) samples() (lines []string) {
	l.t.Helper()
	families, err := l.registry.Gather()
	l.Expect(err).NotTo(HaveOccurred())
	for _, family := range families {
		var text strings.Builder
		_, err := expfmt.MetricFamilyToText(&text, family)
		l.Expect(err).NotTo(HaveOccurred())
		for line := range strings.Lines(text.String()) {
			if sample, ok := strings.CutPrefix(line, "heirloom_"); ok {
				lines = append(lines, strings.TrimSpace(sample))
			}
		}
	}
	waiting := 0
	for _, line := range lines {
		if state, value, ok := strings.Cut(line, "} "); ok && strings.HasPrefix(state, "no_execute_nodes{") && !strings.Contains(state, `"done"`) {
			nodes, err := strconv.Atoi(value)
			l.Expect(err).NotTo(HaveOccurred())
			waiting += nodes
		}
	}
	return append(lines, fmt.Sprint("waiting_nodes ", waiting))
}
