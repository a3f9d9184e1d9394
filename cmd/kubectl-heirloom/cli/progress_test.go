// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

func TestProgress(t *testing.T) {
	for name, tc := range map[string]struct {
		takes time.Duration
		want  string
	}{
		"quick": {quiet - time.Millisecond, ""},
		"slow":  {quiet + time.Millisecond, "Reading 3 Clusters …\n"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var errOut bytes.Buffer
				f := &Factory{IOStreams: genericiooptions.IOStreams{ErrOut: &errOut}}
				done := f.Progress("Reading %d Clusters", 3)
				<-time.After(tc.takes) // in the test's own time
				synctest.Wait()
				done()
				NewWithT(t).Expect(errOut.String()).To(Equal(tc.want))
			})
		})
	}
}
