// SPDX-License-Identifier: Apache-2.0

package world

import "context"

// kind is a kind of actions. draw draws its parts, do does it.
type kind struct {
	weight int
	draw   func(d draws) Action
	do     func(ctx context.Context, w *World, a Action)
}

// kinds has all kinds of actions by their names.
func kinds() map[string]kind {
	return map[string]kind{
		// Operators.
		"declare":        {4, drawEntry, declare},
		"toggle":         {7, drawEntry, toggle},
		"scale":          {1, func(d draws) Action { return Action{Who: d.set(), N: 1 + d.below(5)} }, scale},
		"recreate":       {1, func(d draws) Action { return Action{Who: d.set()} }, recreate},
		"lose owner":     {1, func(d draws) Action { return Action{Who: d.set(), Lasts: d.seconds(90)} }, loseOwner},
		"delete Machine": {1, func(d draws) Action { return Action{N: d.below(10)} }, deleteMachine},
		"delete Node":    {1, func(d draws) Action { return Action{Who: d.cluster(), N: d.below(10)} }, deleteNode},
		"mode": {1, func(d draws) Action {
			return Action{Who: d.cluster(), Value: d.oneOf("enforce", "observe", "")}
		}, setMode},
		"pause": {1, func(d draws) Action { return Action{Who: d.cluster(), Lasts: d.seconds(90)} }, pause},
		"declare briefly": {2, func(d draws) Action {
			a := drawEntry(d)
			a.Lasts = d.seconds(40)
			return a
		}, declareBriefly},

		"settle": {2, func(draws) Action { return Action{} }, settle},

		// Other writers, and kubelets.
		"foreign write": {3, drawForeign, foreignWrite},
		"foreign clear": {3, drawForeign, foreignWrite},
		"stale taints":  {1, func(d draws) Action { return Action{Who: d.cluster(), Lasts: d.seconds(90)} }, staleTaints},
		"neighbour":     {1, drawNeighbour, neighbour},
		"kubelet write": {2, func(d draws) Action { return Action{Who: d.cluster(), N: d.below(10)} }, kubeletWrite},
		"budget":        {1, func(d draws) Action { return Action{Who: d.cluster(), Lasts: d.seconds(180)} }, holdBudget},
		"instance type": {2, drawInstanceType, setInstanceType},
		"condition":     {2, drawStart, setCondition},
		"daemonset Pod": {2, drawStart, setDaemonSetPod},
		"GPUs":          {2, drawStart, setGPUs},

		// Faults.
		"stop":            {1, drawRestart, restart},
		"kill":            {2, drawRestart, restart},
		"freeze":          {2, func(d draws) Action { return Action{Who: d.replica(), Lasts: d.seconds(150)} }, freeze},
		"away":            {1, func(d draws) Action { return Action{Who: d.cluster(), Lasts: d.seconds(90)} }, away},
		"hang":            {1, func(d draws) Action { return Action{Who: d.cluster(), Lasts: d.seconds(90)} }, hang},
		"webhooks away":   {1, func(d draws) Action { return Action{Lasts: d.seconds(90)} }, func(_ context.Context, w *World, a Action) { w.goesWrong(webhooksAreAway, a.Lasts.Duration) }},
		"webhooks late":   {1, func(d draws) Action { return Action{N: d.below(4000), Lasts: d.seconds(90)} }, webhooksLate},
		"restart servers": {1, func(d draws) Action { return Action{Who: d.cluster()} }, restartServers},
		"forget versions": {1, func(d draws) Action { return Action{Who: d.cluster()} }, restartServers},
		"storm":           {1, func(d draws) Action { return Action{Lasts: d.seconds(90)} }, func(_ context.Context, w *World, a Action) { w.goesWrong(requestsFail, a.Lasts.Duration) }},
		"stall":           {4, drawStall, func(_ context.Context, w *World, a Action) { w.goesWrong(stallOf(a.Who, a.Key), a.Lasts.Duration) }},
	}
}
