// SPDX-License-Identifier: Apache-2.0

// Package bench measures the costs of Heirloom, always as a ratio to a baseline that is measured in the same run, in turn with Heirloom,
// so that the result does not depend on the machine.
package bench

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// planes has the control planes of all benchmarks: a start takes longer than most measurements.
var planes controlplane.Pool

// TestMain keeps log lines, for example the warning for each label that Heirloom restores, out of the lines of benchmarks.
func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	if address, is := os.LookupEnv(noOpEnvironment); is {
		if err := serveNoOp(ctrl.SetupSignalHandler(), address, os.Getenv(noOpCertificate)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	status := m.Run()
	if _, err := planes.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = 1
	}
	os.Exit(status)
}

// newAuditedStage returns a control plane with Heirloom as a program, and the path of the API server's audit log, which may already have
// entries of others.
func newAuditedStage(b *testing.B, options stage.Options) (s *stage.Stage, auditLog string) {
	b.Helper()
	var err error
	if options.Program, err = controlplane.Built(b.Context(), "heirloom"); err != nil {
		b.Fatal(err)
	}
	ofPlane, err := stage.ControlPlaneOptions(b.Context(), controlplane.Options{})
	if err != nil {
		b.Fatal(err)
	}
	lent, err := planes.Lend(b.Context(), ofPlane)
	if err != nil {
		b.Fatal(err)
	}
	options.On, options.Dir = lent.ControlPlane, b.TempDir()
	if s, err = stage.New(b.Context(), options); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Stop(); err != nil {
			b.Error(err)
		}
		if err := lent.GiveBack(context.Background()); err != nil {
			b.Error(err)
		}
	})
	return s, lent.AuditLog
}

// sizes returns the sizes in an environment variable. The default sizes are small, so that each benchmark can run once in a moment.
func sizes(b *testing.B, variable string, small ...int) (of []int) {
	b.Helper()
	for field := range strings.FieldsSeq(os.Getenv(variable)) {
		size, err := strconv.Atoi(field)
		if err != nil {
			b.Fatalf("%s: %v", variable, err)
		}
		of = append(of, size)
	}
	if len(of) == 0 {
		return small
	}
	return of
}
