// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"time"
)

func drawRestart(d draws) Action {
	return Action{Who: d.oneOf(heirloomUser+"-0", heirloomUser+"-1", clusterAPI), Lasts: d.seconds(90)}
}

// restart ends a program, and starts it again after a while. "kill" ends it in the middle of its work, "stop" as SIGTERM does.
func restart(ctx context.Context, w *World, a Action) {
	p := w.program(a.Who)
	if !p.down.CompareAndSwap(false, true) {
		return
	}
	w.actions.Go(func() {
		if a.What == "stop" {
			p.stop()
		} else {
			p.kill()
		}
		sleep(ctx, a.Lasts.Duration)
		p.start()
		p.down.Store(false)
	})
}

// freeze pauses a replica, as SIGSTOP does, perhaps past its Lease: its requests are neither sent nor answered, it sees no events, and its
// webhooks do not answer. Then it goes on with what it had decided.
func freeze(_ context.Context, w *World, a Action) { w.goesWrong(freezeOf(a.Who), a.Lasts.Duration) }

func away(_ context.Context, w *World, a Action) {
	w.goesWrong(awayOf(a.Who), a.Lasts.Duration)
	w.cluster(a.Who).server.CutWatches()
}

// hang is a workload cluster that accepts requests and does not answer.
func hang(_ context.Context, w *World, a Action) { w.goesWrong(hangsOf(a.Who), a.Lasts.Duration) }

func webhooksLate(_ context.Context, w *World, a Action) {
	w.goesWrong(webhooksAreLate, a.Lasts.Duration)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.late = time.Duration(a.N) * time.Millisecond
}

// restartServers restarts API servers. "forget versions" also loses the history of watches.
func restartServers(_ context.Context, w *World, a Action) {
	for _, of := range []*cluster{w.management, w.cluster(a.Who)} {
		if a.What == "forget versions" {
			of.server.Expire()
		}
		of.server.CutWatches()
	}
}

// drawStall draws a replica that sees old versions of a kind, or of all kinds except Nodes, because the watch sends nothing.
func drawStall(d draws) Action {
	kind := d.oneOf("owners", "owners", "machines", "machinesets", "machinedeployments", "clusters", "nodes", "fakemachines")
	return Action{Who: d.replica(), Key: kind, Lasts: d.seconds(90)}
}
