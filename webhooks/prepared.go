// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"k8s.io/utils/lru"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/ownerchain"
	"github.com/heirloom-dev/heirloom/pkg/ownership"
)

// mostPrepared is how many versions of owners are prepared. Each takes some kilobytes.
const mostPrepared = 256

// prepared keeps what follows from a version of an owner alone: all Machines of a MachineSet are asked about with the same.
type prepared struct{ byVersion *lru.Cache }

type preparedFor struct {
	version ownerchain.Version
	// apiVersion is that of the objects that inherit; kind is theirs.
	apiVersion, kind string
}

type preparedIn struct {
	layout  inherit.Layout
	content *ownership.Prepared
}

func newPrepared() prepared {
	return prepared{byVersion: lru.New(mostPrepared)}
}

// of returns what is prepared for objects that are decided about like this one, or nil if each needs a plan of its own.
func (p prepared) of(c child, apiVersion, kind string) *ownership.Prepared {
	version := c.decided.Version()
	if p.byVersion == nil || version == (ownerchain.Version{}) {
		return nil
	}
	key := preparedFor{version, apiVersion, kind}
	if known, ok := p.byVersion.Get(key); ok {
		if in, ok := known.(preparedIn); ok && in.layout.Equal(c.current.Layout) {
			return in.content
		}
	}
	in := preparedIn{layout: c.current.Layout, content: ownership.Prepare(c.current.Layout, c.decided.Desired)}
	p.byVersion.Add(key, in)
	return in.content
}
