// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"fmt"
	"strings"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/managedfields"
)

const (
	// states is the number of states through which owners go. Before the state usersChange, users change the children.
	states, usersChange = 4, 2
	// touched is a label that a user writes so that the webhooks review a child again. API servers send reviews about changes in this domain.
	touched = "test.x-k8s.io/touched"
)

// play plays all cases side by side, with the loop alone or with admission alone.
type play struct {
	*table
	*world
	name string
	// byLoop is the same play with the loop; nil in this play itself.
	byLoop   *play
	owners   []*object
	children []*child
}

// object is an object of a case.
type object struct {
	// title is for messages.
	title string
	// uids has the UIDs of the objects of the case, by kind and name.
	uids map[string]types.UID
	// bare is the object of an owner that declares nothing; an owner declares content at a place.
	bare     map[string]any
	at       place
	declares []content
	// written is the object as users have written it, stored the object as it is stored while Heirloom does nothing.
	written, stored map[string]any
}

type child struct {
	*object
	childCase
	// byLoop is the same child in the play with the loop.
	byLoop *child
	// created is the first state of stored.
	created map[string]any
	// owned are the fields that heirloom owns, by state.
	owned []string
}

// run plays the cases in virtual time.
func (p *play) run(ctx context.Context, w *world) {
	p.world = w
	p.createNamespace(ctx, system)
	p.createNamespace(ctx, home)
	p.createObject(ctx, &object{title: home, uids: map[string]types.UID{}, written: p.manifestsFor(home, home)["Cluster"]})
	for i, c := range p.Cases {
		p.prepare(ctx, c, fmt.Sprint("case-", i))
	}
	for _, o := range p.owners {
		p.createObject(ctx, o)
	}
	if p.byLoop == nil {
		p.createChildren(ctx) // before Heirloom starts
	}
	defer p.start(ctx)()
	settle()
	if p.byLoop != nil {
		p.createChildren(ctx)
	}
	for state := range states {
		if state == usersChange {
			for _, c := range p.children {
				p.write(ctx, c.object, p.patch(c, "again"))
			}
		}
		for _, o := range p.owners {
			next := o.declaring(state)
			p.write(ctx, o, difference(o.written, next))
			o.written = next
		}
		settle()
		for _, c := range p.children {
			p.expect(ctx, c, state)
		}
		for _, o := range p.owners {
			p.expectUnchanged(ctx, o, state)
		}
	}
}

// settle waits until nothing happens any more.
func settle() { <-time.After(10 * time.Second) } // of virtual time

// prepare adds the objects of a case.
func (p *play) prepare(ctx context.Context, c conformanceCase, name string) {
	cluster := name
	if c.Home {
		cluster = home
	} else {
		p.createNamespace(ctx, cluster)
	}
	manifests, uids := p.manifestsFor(name, cluster), map[string]types.UID{}
	named := func(manifest string) *object {
		if manifests[manifest] == nil {
			p.t.Fatalf("there is no manifest %s", manifest)
		}
		title := fmt.Sprintf("%s, rules %v, %s of %s", p.name, c.Rules, manifest, c.Owners[len(c.Owners)-1].Object)
		return &object{title: title, uids: uids, bare: manifests[manifest]}
	}
	for _, of := range c.Owners {
		o := named(of.Object)
		o.at, o.declares = p.Places[of.At], p.content[of.Declares]
		o.written = o.declaring(0)
		p.owners = append(p.owners, o)
	}
	for _, of := range c.Children {
		added := &child{object: named(of.Object), childCase: of}
		added.written = merge(added.bare, p.patch(added, "mine"))
		p.children = append(p.children, added)
		if group, _, _ := strings.Cut(fmt.Sprint(added.bare["apiVersion"]), "/"); group == inherit.ControlPlaneGroup {
			// Cluster API adds the reference to the Cluster once the control plane exists.
			o := p.owners[len(p.owners)-1]
			ref := map[string]any{"apiGroup": group, "kind": added.bare["kind"], "name": name}
			o.bare = merge(o.bare, map[string]any{"spec": map[string]any{"controlPlaneRef": ref}})
		}
	}
}

// declaring returns the owner with its declarations in a state.
func (o *object) declaring(state int) map[string]any {
	if o.declares == nil {
		return o.bare
	}
	return merge(o.bare, o.at.put(o.declares[state]))
}

// patch returns the merge patch that adds a content of users at the places of a child.
func (p *play) patch(c *child, name string) map[string]any {
	patch := map[string]any{}
	for at := range c.Gets {
		patch = merge(patch, p.Places[at].put(p.content[name][0]))
	}
	return patch
}

// createObject creates an object as a user.
func (p *play) createObject(ctx context.Context, o *object) {
	u := &unstructured.Unstructured{Object: listed(o.written)}
	references := u.GetOwnerReferences()
	for i, of := range references {
		references[i].UID = o.uids[of.Kind+of.Name]
	}
	u.SetOwnerReferences(references)
	if err := p.user.Create(ctx, u); err != nil {
		p.t.Fatalf("%s: %v", o.title, err)
	}
	synctest.Wait() // the caches of Heirloom have the object
	o.uids[u.GetKind()+u.GetName()], o.stored = u.GetUID(), inherited(u)
}

// createChildren creates the children. The play with the loop creates them before Heirloom starts.
func (p *play) createChildren(ctx context.Context) {
	for i, c := range p.children {
		p.createObject(ctx, c.object)
		if p.byLoop != nil {
			c.byLoop = p.byLoop.children[i]
			c.stored = c.byLoop.created
		}
		c.created = c.stored
	}
}

// write applies a merge patch to an object as a user. It sends a list as a whole.
func (p *play) write(ctx context.Context, o *object, patch map[string]any) {
	u := p.get(ctx, o)
	before, _ := u.DeepCopyObject().(client.Object)
	u.Object = listed(merge(mapped(u.Object), patch))
	if err := p.user.Patch(ctx, u, client.MergeFrom(before)); err != nil {
		p.t.Fatalf("%s: %v", o.title, err)
	}
	o.stored = merge(o.stored, patch)
	synctest.Wait() // the caches of Heirloom have the object
}

func (p *play) get(ctx context.Context, o *object) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: listed(o.bare)}
	if err := p.user.Get(ctx, client.ObjectKeyFromObject(u), u); err != nil {
		p.t.Fatalf("%s: %v", o.title, err)
	}
	return u
}

// read returns an object as it is stored. With admission, two writes of a user come first: typed taints are made of the annotations that an
// object has when it is written.
func (p *play) read(ctx context.Context, o *object, state int) *unstructured.Unstructured {
	if p.byLoop != nil && state > 0 {
		for _, value := range []string{"once", "twice"} {
			p.write(ctx, o, map[string]any{"metadata": map[string]any{"labels": map[string]any{touched: value}}})
		}
	}
	return p.get(ctx, o)
}

// expect expects a child to differ from the object without Heirloom by the content that it gets, and by nothing else.
func (p *play) expect(ctx context.Context, c *child, state int) {
	u := p.read(ctx, c.object, state)
	owned := ""
	for _, entry := range u.GetManagedFields() {
		if managedfields.IsOurs(entry) {
			owned = entry.FieldsV1.GetRawString()
		}
	}
	c.owned = append(c.owned, owned)
	if c.Admission && p.byLoop == nil {
		return
	}
	want := map[string]any{}
	for at, gets := range c.Gets {
		want = merge(want, p.Places[at].put(p.content[gets][state]))
	}
	if diff := cmp.Diff(want, difference(c.stored, inherited(u))); diff != "" {
		p.t.Errorf("%s, state %d: wanted (-) and got (+)\n%s", c.title, state, diff)
	}
	if u.GetKind() != "Node" && (owned == "") != (len(want) == 0) {
		p.t.Errorf("%s, state %d: heirloom owns %q", c.title, state, owned)
	}
	if c.byLoop == nil || c.Admission {
		return
	}
	if diff := cmp.Diff(c.byLoop.owned[state], owned); diff != "" {
		p.t.Errorf("%s, state %d: owned with the loop (-) and with admission (+)\n%s", c.title, state, diff)
	}
}

// expectUnchanged expects an owner to be as users have written it. A Machine may have typed taints of its own annotations.
func (p *play) expectUnchanged(ctx context.Context, o *object, state int) {
	u := p.read(ctx, o, state)
	if diff := cmp.Diff(o.stored, inherited(u)); diff != "" && u.GetKind() != "Machine" {
		p.t.Errorf("%s, state %d: written (-) and stored (+)\n%s", o.title, state, diff)
	}
}
