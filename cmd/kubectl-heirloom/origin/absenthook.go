// SPDX-License-Identifier: Apache-2.0

package origin

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/owners"
)

// addAbsences adds to the explanation of an object of Cluster API or of a provider what it has not got, and why. key is the key of
// interest; empty means all that someone may miss.
func addAbsences[P client.Object](
	ctx context.Context, x *Explainer, e *Explanation, kind owners.Kind, ref inherit.Ref, object P, key string,
) (*Explanation, error) {
	q := question{chain: &x.chain, settings: x.settings, policy: x.settings.Policy(), key: key}
	found, err := absences(ctx, q, kind, ref, object)
	e.add(found, err)
	return e, nil
}

// addAbsencesOfNode is addAbsences for a Node of the chain's Cluster.
func (x *Explainer) addAbsencesOfNode(ctx context.Context, e *Explanation, chain *owners.Chain, node *corev1.Node, key string) (*Explanation, error) {
	q := question{chain: chain, settings: x.settings, policy: x.policyFor(node), key: key}
	found, err := absencesOfNode(ctx, q, node, time.Now())
	e.add(found, err)
	return e, nil
}

// add merges absences into the entries: an entry that is missing or differs gets its reason, and the rest become entries. The notes
// say already which owner is not known or cannot be read, unless it is one further up.
func (e *Explanation) add(found []Absence, err error) {
	if err != nil && !slices.ContainsFunc(e.Notes, func(note string) bool { return strings.Contains(note, cli.OneLine(err)) }) {
		e.Notes = append(e.Notes, "Why something is missing is not known: "+cli.OneLine(err)+".")
	}
	for _, a := range found {
		if a.Key == "" {
			continue
		}
		at := slices.IndexFunc(e.Entries, func(entry Entry) bool {
			return entry.Kind == a.Kind && entry.Key == a.Key && (entry.Status == Missing || entry.Status == Differs)
		})
		if at >= 0 {
			e.Entries[at].Reason, e.Entries[at].Message = a.Reason, a.Message
			continue
		}
		e.Entries = append(e.Entries, a.entry())
	}
	sortEntries(e.Entries)
}

func (a Absence) entry() Entry {
	entry := Entry{Kind: a.Kind, Key: a.Key, Value: a.Value, Status: Absent, From: a.From, Reason: a.Reason, Message: a.Message}
	if a.Reason == string(notYet) {
		entry.Status = Missing
	}
	if a.Source.Object != nil {
		entry.Source = structured(a.Source)
	}
	return entry
}

// ofControllers reports whether a key is one that Cluster API's controllers and providers give to every Machine. No one misses it.
func ofControllers(key string) bool {
	domain, _, prefixed := strings.Cut(key, "/")
	return key == clusterv1.MachineDeploymentUniqueLabel || prefixed && strings.HasSuffix("."+domain, ".cluster.x-k8s.io")
}
