// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
)

// With --watch, an answer is printed when it differs from the last, and an error does not end the command.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		streams, _, out, problems := genericiooptions.NewTestIOStreams()
		o := &fleetOptions{Factory: &cli.Factory{IOStreams: streams, Color: "never"}, watch: true}
		ctx, cancel := context.WithTimeout(t.Context(), 5*between+time.Second)
		defer cancel()
		answers, asked := []string{"one", "one", "two", "", "two", "two"}, 0
		err := o.run(ctx, func(context.Context) (err error) {
			answer := answers[asked]
			if asked++; answer == "" {
				return errors.New("away")
			}
			_, _ = fmt.Fprintln(o.Out, answer)
			return cli.ErrFound
		})
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		NewWithT(t).Expect(asked).To(Equal(len(answers)))
		NewWithT(t).Expect(out.String()).To(Equal("one\n" + "two\n" + "two\n"))
		NewWithT(t).Expect(problems.String()).To(Equal("error: away\n"))
	})
}
