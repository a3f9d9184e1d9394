// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/status"
)

// status --watch prints a roll-out when its state or its numbers differ, and ends when all are done, or at the timeout.
func TestWatchRollouts(t *testing.T) {
	rollout := func(cluster string, state status.State, done int) status.Rollout {
		left := time.Now().Unix() // it differs each time
		return status.Rollout{Namespace: "fleet", Cluster: cluster, State: state, Nodes: 2, Done: done, Waiting: 2 - done, SecondsLeft: &left}
	}
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		streams, _, out, problems := genericiooptions.NewTestIOStreams()
		follow := func(timeout time.Duration) error {
			out.Reset()
			o := &fleetOptions{Factory: &cli.Factory{IOStreams: streams, Color: "never"}, print: cli.NewPrintFlags(), watch: true}
			start := time.Now()
			return o.follow(t.Context(), timeout, func(context.Context) (*status.Status, error) {
				a, b := rollout("a", status.Running, 1), rollout("b", status.Waiting, 0)
				if time.Since(start) >= 2*between {
					a = rollout("a", status.Done, 2)
				}
				if time.Since(start) >= 4*between {
					b = rollout("b", status.Done, 2)
				}
				return &status.Status{Rollouts: []status.Rollout{a, b}}, nil
			})
		}
		const begin = "fleet/a Running: 1/2 Nodes done, 1 waiting, 0 held up\nfleet/b Waiting: 0/2 Nodes done, 2 waiting, 0 held up\n" +
			"fleet/a Done: 2/2 Nodes done, 0 waiting, 0 held up\n"
		g.Expect(follow(0)).To(Succeed())
		g.Expect(out.String()).To(Equal(begin + "fleet/b Done: 2/2 Nodes done, 0 waiting, 0 held up\n"))
		g.Expect(problems.String()).To(BeEmpty())
		g.Expect(cli.ExitCode(follow(3 * between))).To(Equal(cli.ExitFound))
		g.Expect(out.String()).To(Equal(begin))
		g.Expect(problems.String()).To(Equal("error: not all roll-outs are done after 15s\n"))
	})
}
