// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	logsjson "k8s.io/component-base/logs/json"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
)

// formats returns the loggers of --logging-format by name.
func formats(output *bytes.Buffer) map[string]logr.Logger {
	asJSON, _ := logsjson.NewJSONLogger(0, logsjson.AddNopSync(output), nil, nil)
	return map[string]logr.Logger{
		"text": textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(output), textlogger.FixedTime(time.Time{}))),
		"json": asJSON,
	}
}

// A line of the log has a limited length, and still shows the beginning of a long text from another client.
func TestLongLogValuesAreCut(t *testing.T) {
	long := "begin" + strings.Repeat("é", 1<<20)
	for name, log := range map[string]func(logr.Logger){
		"an error":                 func(l logr.Logger) { l.Error(errors.New(long), "failed") },
		"a wrapped error":          func(l logr.Logger) { l.Error(fmt.Errorf("doing: %w", errors.New(long)), "failed") },
		"an error as a value":      func(l logr.Logger) { l.Info("failed", "err", errors.New(long)) },
		"a message":                func(l logr.Logger) { l.Info(long) },
		"a message of an error":    func(l logr.Logger) { l.Error(nil, long) },
		"a value":                  func(l logr.Logger) { l.Info("done", "name", long) },
		"a value of an error":      func(l logr.Logger) { l.Error(nil, "failed", "name", long) },
		"an object's name":         func(l logr.Logger) { l.Info("done", "object", klog.KRef("ns", long)) },
		"a text with a type":       func(l logr.Logger) { l.Info("done", "operation", admissionv1.Operation(long)) },
		"a value of the logger":    func(l logr.Logger) { l.WithValues("user", long).Error(nil, "failed") },
		"a value of a named one":   func(l logr.Logger) { l.WithValues("user", long).WithName("x").WithValues("a", 1).Info("done") },
		"a value beside another's": func(l logr.Logger) { l.WithValues("a", 1).Info("done", "b", 2, "c", long) },
	} {
		t.Run(name, func(t *testing.T) {
			var output bytes.Buffer
			for format, logger := range formats(&output) {
				output.Reset()
				log(briefly(logger))
				NewWithT(t).Expect(output.String()).To(And(ContainSubstring("begin"), ContainSubstring("é…")), format)
				NewWithT(t).Expect(output.Len()).To(BeNumerically("<", 3<<10), "bytes as %s", format)
			}
		})
	}
}

// Short lines do not change, and keep their caller.
func TestShortLogValuesStay(t *testing.T) {
	for name, log := range map[string]func(logr.Logger){
		"an error":        func(l logr.Logger) { l.Error(errors.New("no"), "failed", "object", klog.KRef("ns", "m")) },
		"no error":        func(l logr.Logger) { l.Error(nil, "failed") },
		"values":          func(l logr.Logger) { l.Info("done", "a", 1, "b", true, "c", nil, "d", []string{"x"}, "e", time.Second) },
		"of a logger":     func(l logr.Logger) { l.WithValues("a", 1).WithValues("b", "2").Info("done", "c", 3) },
		"a name":          func(l logr.Logger) { l.WithName("x").WithName("y").Info("done") },
		"another caller":  func(l logr.Logger) { l.WithCallDepth(1).Info("done") },
		"nothing at all":  func(l logr.Logger) { l.V(5).Info("unseen") },
		"a stack, though": func(l logr.Logger) { l.Error(nil, "panic", "stack", strings.Repeat("frame\n", 1000)) },
	} {
		t.Run(name, func(t *testing.T) {
			var output bytes.Buffer
			for format, logger := range formats(&output) {
				var lines []any
				for _, l := range []logr.Logger{logger, briefly(logger)} {
					output.Reset()
					log(l)
					lines = append(lines, parsed(output.String()))
				}
				NewWithT(t).Expect(lines[1]).To(Equal(lines[0]), format)
			}
		})
	}
}

// parsed returns the content of a line, without the time of a JSON line and without the order of its fields.
func parsed(line string) any {
	fields := map[string]any{}
	if json.Unmarshal([]byte(line), &fields) != nil {
		return line
	}
	delete(fields, "ts")
	return fields
}

// The limit holds for all logs of the program: of controllers, of client-go, and of code without a logger.
func TestTheProgramsLogIsShort(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		t.Run(format, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			file, err := os.Create(filepath.Join(t.TempDir(), "log"))
			Expect(err).NotTo(HaveOccurred())
			defer file.Close()
			before := os.Stderr
			os.Stderr = file
			_, err = execute(t, "--kubeconfig=/no/such/file", "--logging-format="+format)
			os.Stderr = before
			Expect(err).To(MatchError(ContainSubstring("loading the kubeconfig")))
			long := errors.New("begin" + strings.Repeat("é", 1<<20))
			klog.FromContext(context.Background()).Error(long, "Reconciler error")
			klog.ErrorS(long, "Failed to watch")
			klog.Errorf("unable to sync: %v", long)
			utilruntime.HandleError(long)
			log, err := os.ReadFile(file.Name())
			Expect(err).NotTo(HaveOccurred())
			Expect(strings.Count(string(log), "begin")).To(Equal(4))
			Expect(len(log)).To(BeNumerically("<", 10<<10), "bytes")
		})
	}
}
