// SPDX-License-Identifier: Apache-2.0

package ownerchain

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/metrics"
)

// noting notes what a decision reads, so that all of it can be read anew at once (BenchmarkRecheck).
type noting struct {
	client.Reader
	*notes
}

// notes are what has been read, as it was read.
type notes struct {
	all []note
	// room is enough for a Machine or a Node, so that a decision that is not in doubt costs one allocation for all of them.
	room [6]note
}

type note struct {
	key     client.ObjectKey
	object  client.Object
	options []client.GetOption
	err     error
}

func takeNotes(reader client.Reader) noting {
	n := &notes{}
	n.all = n.room[:0]
	return noting{Reader: reader, notes: n}
}

// Get implements client.Reader.
func (n noting) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	err := n.Reader.Get(ctx, key, object, options...)
	n.all = append(n.all, note{key, object, options, err})
	return err
}

// cached returns the cache behind a reader. What is read from it directly is not noted.
func (n noting) cached() Cached { return cachedBehind(n.Reader) }

// askAgain asks live for all that is noted, and returns a reader with the answers.
func (n *notes) askAgain(ctx context.Context, live client.Reader) once {
	answers := once{asker: asking(live), reads: make(map[reference]*read, len(n.all))}
	for _, one := range n.all {
		answers.ask(ctx, refer(one.key, one.object))
	}
	return answers
}

// hold reports whether the answers are what is noted, to the version. Then they lead to the same decision.
func (n *notes) hold(ctx context.Context, answers once) bool {
	for _, one := range n.all {
		now, err := answers.ask(ctx, refer(one.key, one.object)).wait(ctx)
		if !one.holds(now, err) {
			return false
		}
	}
	return len(n.all) > 0
}

func (n note) holds(now client.Object, err error) bool {
	if n.err != nil || err != nil {
		return apierrors.IsNotFound(n.err) && apierrors.IsNotFound(err)
	}
	version := now.GetResourceVersion()
	return version != "" && version == n.object.GetResourceVersion() && now.GetUID() == n.object.GetUID()
}

// count counts the look-ups of owners that are noted and hold.
func (n *notes) count(cached Cached) {
	for _, one := range n.all {
		cached.count(metrics.Live, one.object, one.err, one.options)
	}
}

// once is a reader for one decision, which reads each object once.
type once struct {
	client.Reader // nothing but Get is called
	asker
	reads map[reference]*read
}

// Get implements client.Reader.
func (o once) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	return o.ask(ctx, refer(key, into)).copyTo(ctx, into, options...)
}

func (o once) ask(ctx context.Context, to reference) *read {
	asked, known := o.reads[to]
	if !known {
		asked = o.asker.ask(ctx, to)
		o.reads[to] = asked
	}
	return asked
}
