// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// witnessKey is a label that an owner declares where it does reach the child, with another value in each state: once it
// is there, the rest of the state has been handled as well, or never will be.
const witnessKey = "node.cluster.x-k8s.io/witness"

// state is what the owners of a descent declare for a child.
type state struct {
	// declared is about one column, and at the place that the row of the table calls "from".
	declared, witness content
	// byClass says that a ClusterClass declares all of it and the Cluster nothing.
	byClass bool
}

// descent is a child and its owners in one subtest.
type descent struct {
	*scene
	path            path
	namespace, name string
	// key names the subtest on either path.
	key string
	// home says that the Cluster is the management cluster itself: the child is a Node of that.
	home   bool
	script script
	state  state

	// room is the place where the row's owner declares.
	room   place
	owners []*owner
	child  *unstructured.Unstructured
	into   []target
	// cached says that the program reads what the child inherits from its caches alone, so that it may come to know a moment
	// after it was stored.
	cached bool
	// stored is called after the child was; it may be nil.
	stored func()
	// bystanders are objects beside the child that inherit nothing.
	bystanders []*bystander
	// compared are objects in whose specs nothing else may change than what the rules are about.
	compared []compared
}

// owner is an object that declares.
type owner struct {
	// base declares nothing; sent is what was written last.
	base, sent *unstructured.Unstructured
	declare    func(object map[string]any, s state)
}

// target is a place of the child, and what of the owner's content arrives there.
type target struct {
	place
	arrives func(content) content
}

func everything(c content) content { return c }

// owns stores an object that declares the state of the descent, now and whenever that changes.
func (l *descent) owns(base *unstructured.Unstructured, declare func(map[string]any, state)) *unstructured.Unstructured {
	l.t.Helper()
	o := &owner{base: base, declare: declare}
	o.sent = o.declaring(l.state)
	l.owners = append(l.owners, o)
	stored := o.sent.DeepCopy()
	l.create(stored)
	if kind := base.GetKind(); kind != "Cluster" && kind != "ClusterClass" {
		l.compare(l.plain(base), stored)
	}
	return stored
}

// from makes an owner declare at a place, and the witness there too. held are labels for which it declares another value
// than the child's, in every state: a child keeps those by which it is found.
func (l *descent) from(at place, held ...string) func(map[string]any, state) {
	l.room = at
	return func(object map[string]any, s state) {
		for _, key := range append([]string{clusterv1.ClusterNameLabel}, held...) {
			at.put(object, content{labelColumn: {key: "another"}})
		}
		at.put(object, neverInherited())
		at.put(object, s.declared.and(s.witness))
	}
}

// fromMetadata makes an owner declare in its own metadata, and the witness in its template.
func (l *descent) fromMetadata(template place) func(map[string]any, state) {
	l.room = metadataPlace()
	return func(object map[string]any, s state) {
		metadataPlace().put(object, neverInherited().and(s.declared))
		template.put(object, s.witness)
	}
}

// neverInherited is what no rule hands down, no matter who declares it.
func neverInherited() content {
	return content{
		labelColumn:      {"app.kubernetes.io/managed-by": "a-tool"},
		annotationColumn: {"kubectl.kubernetes.io/restartedAt": "now", "argocd.argoproj.io/tracking-id": "x"},
	}
}

func (o *owner) declaring(s state) *unstructured.Unstructured {
	object := o.base.DeepCopy()
	o.declare(object.Object, s)
	return object
}

// declare changes what the owners declare, as an administrator does who edits them.
func (l *descent) declare(s state) {
	l.t.Helper()
	l.state = s
	for _, o := range l.owners {
		next := o.declaring(s)
		answer := next.DeepCopy()
		l.Expect(l.Client.Patch(l.ctx, answer, client.MergeFrom(o.sent))).To(Succeed())
		o.sent = next
	}
}

// play is a subtest: the child is created bare and then follows its owners from state to state, to the one in which they
// declare nothing. carried is what the table says of the column.
func (l *descent) play(c conformanceCase, in column, carried bool) {
	l.t.Helper()
	l.script = scriptOf(in)
	l.state = l.at(0)
	c.set(l)
	bare := l.plain(l.child)
	l.compare(bare, l.child)
	users := l.script.mine
	for _, to := range l.into {
		to.put(l.child.Object, users)
	}
	number := 0
	expect := func(g Gomega, child *unstructured.Unstructured) {
		l.expect(g, child, bare, users, carried)
		l.expectSameFields(g, child, number)
	}

	l.bear(expect)
	l.expectNothingElse()
	for i := 1; i < len(l.script.states); i++ {
		if i == 2 {
			users = users.and(l.script.again)
			l.change(l.child, func(object map[string]any) {
				for _, to := range l.into {
					to.put(object, l.script.again)
				}
			})
		}
		l.declare(l.at(i))
		number = i
		l.follow(expect)
	}
	l.expectNothingElse()
}

// at is the state of that number. In the last one there is nothing, not even a witness.
func (l *descent) at(i int) state {
	if i == len(l.script.states)-1 {
		return state{}
	}
	return state{declared: l.script.states[i], witness: content{labelColumn: {witnessKey: strconv.Itoa(i)}}, byClass: i == 2}
}

// bear creates the child. In admission it must inherit in that very write.
func (l *descent) bear(expect func(Gomega, *unstructured.Unstructured)) {
	l.t.Helper()
	if l.path.admission && l.cached {
		l.Eventually(func(g Gomega) {
			child := l.child.DeepCopy()
			g.Expect(l.Client.Create(l.ctx, child, client.DryRunAll)).To(Succeed())
			expect(g, child)
		}).WithTimeout(patience).WithPolling(20*time.Millisecond).Should(Succeed(), "in a create, once the owner is known")
	}
	l.create(l.child)
	if l.path.admission {
		expect(l, l.child)
	}
	if l.stored != nil {
		l.stored()
	}
	if !l.path.admission {
		l.follow(expect)
	}
}

// follow waits until the child has what its owners declare: with the loop by itself, in admission with the next write.
func (l *descent) follow(expect func(Gomega, *unstructured.Unstructured)) {
	l.t.Helper()
	if l.path.admission {
		l.Eventually(func(g Gomega) {
			g.Expect(l.touch(l.child)).To(Succeed())
			expect(g, l.child)
		}).WithTimeout(patience).WithPolling(20 * time.Millisecond).Should(Succeed())
	} else {
		l.eventually(l.child, func(g Gomega) { expect(g, l.child) })
	}
}

// touch writes an object as somebody who changes something else, and reads the answer into it.
func (l *descent) touch(object *unstructured.Unstructured) error {
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:"%d"}}}`, touched, time.Now().UnixNano())
	return l.Client.Patch(l.ctx, object, client.RawPatch(types.MergePatchType, []byte(patch)))
}

// change writes an object as a user does.
func (l *descent) change(object *unstructured.Unstructured, how func(map[string]any)) {
	l.t.Helper()
	l.get(object)
	before := object.DeepCopy()
	how(object.Object)
	l.Expect(l.Client.Patch(l.ctx, object, client.MergeFrom(before))).To(Succeed())
}

// controlledBy makes owner the controller of an object, or else one of its owners.
func controlledBy(object, owner *unstructured.Unstructured, controller bool) *unstructured.Unstructured {
	ref := *metav1.NewControllerRef(owner, owner.GroupVersionKind())
	if !controller {
		ref.Controller, ref.BlockOwnerDeletion = nil, nil
	}
	object.SetOwnerReferences(append(slices.Clone(object.GetOwnerReferences()), ref))
	return object
}
