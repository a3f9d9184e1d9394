// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

func TestSentence(t *testing.T) {
	refused := &url.Error{Op: "Get", URL: "https://10.0.0.1:6443/api?timeout=32s", Err: &net.OpError{
		Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED),
	}}
	late := &url.Error{Op: "Get", URL: "https://10.0.0.1:6443/api", Err: context.DeadlineExceeded}
	missing := apierrors.NewNotFound(schema.GroupResource{Group: "cluster.x-k8s.io", Resource: "machines"}, "x")
	for name, tc := range map[string]struct {
		err  error
		want string
		code int
	}{
		"nothing":                               {nil, "", 0},
		"found":                                 {fmt.Errorf("two: %w", ErrFound), "", 1},
		"found, and another error that is none": {errors.Join(ErrFound, nil), "", 1},
		"found and failed":                      {errors.Join(ErrFound, errors.New("a")), "a", 2},
		"failed and found":                      {errors.Join(errors.New("a"), errors.Join(errors.New("a"), ErrFound)), "a", 2},
		"connection refused": {fmt.Errorf("reading Nodes of Cluster fleet/prod: %w", refused),
			"reading Nodes of Cluster fleet/prod: The connection to the server 10.0.0.1:6443 was refused - did you specify the right host or port?", 2},
		"too late":     {late, "Unable to connect to the server: context deadline exceeded", 2},
		"interrupted":  {fmt.Errorf("listing: %w", context.Canceled), "interrupted", 2},
		"several":      {errors.Join(errors.New("a"), errors.Join(missing, missing)), "a\n" + `machines.cluster.x-k8s.io "x" not found`, 2},
		"not found":    {NotFound("Cluster", types.NamespacedName{Namespace: "fleet", Name: "x"}), `Cluster "x" not found in namespace "fleet" (use -n)`, 2},
		"no such Node": {NotFound("Node", types.NamespacedName{Name: "x"}), `Node "x" not found`, 2},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(Sentence(tc.err)).To(Equal(tc.want))
			NewWithT(t).Expect(ExitCode(tc.err)).To(Equal(tc.code))
		})
	}
}

func TestProgress(t *testing.T) {
	for takes, want := range map[time.Duration]string{quiet - time.Millisecond: "", quiet + time.Millisecond: "Reading 3 Clusters …\n"} {
		synctest.Test(t, func(t *testing.T) {
			var errOut bytes.Buffer
			f := &Factory{IOStreams: genericiooptions.IOStreams{ErrOut: &errOut}}
			done := f.Progress("Reading %d Clusters", 3)
			<-time.After(takes) // in the test's own time
			synctest.Wait()
			done()
			NewWithT(t).Expect(errOut.String()).To(Equal(want))
		})
	}
}
