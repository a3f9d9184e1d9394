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

// witnessKey is a label that an owner declares at a place from which it reaches the child, with another value in each state. When it
// arrives, the program has also handled the rest of the state, or never will.
const witnessKey = "node.cluster.x-k8s.io/witness"

// state is the declarations of a descent's owners for the child.
type state struct {
	// declared is content of one column, at the place that the row of the table calls "from".
	declared, witness content
	// byClass means that the ClusterClass declares everything and the Cluster nothing.
	byClass bool
}

// descent is a child and its owners in one subtest.
type descent struct {
	*scene
	path            path
	namespace, name string
	// key identifies the subtest on both paths.
	key string
	// home means that the Cluster is the management cluster itself: the child is a Node of the management cluster.
	home   bool
	script script
	state  state

	// room is the place where the row's owner declares.
	room   place
	owners []*owner
	child  *unstructured.Unstructured
	into   []target
	// cached means that the program reads the sources of the child only from its caches, so it may see them only a moment
	// after they were stored.
	cached bool
	// stored is called after the child was created; it may be nil.
	stored func()
	// bystanders are other objects, which inherit nothing.
	bystanders []*bystander
	// compared are objects in whose specs only the fields of the rules may change.
	compared []compared
}

// owner is an object with declarations for the child.
type owner struct {
	// base declares nothing; sent is the object of the last write.
	base, sent *unstructured.Unstructured
	declare    func(object map[string]any, s state)
}

// target is a place of the child. arrives returns the part of the owner's content that arrives there.
type target struct {
	place
	arrives func(content) content
}

func everything(c content) content { return c }

// owns stores an object that declares the state of the descent, and updates it when the state changes.
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

// from returns a function that declares the content and the witness of a state at a place. held are labels for which the owner declares
// another value than the child's in every state: a child keeps the labels that select it.
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

// fromMetadata returns a function that declares the content in the owner's own metadata, and the witness in its template.
func (l *descent) fromMetadata(template place) func(map[string]any, state) {
	l.room = metadataPlace()
	return func(object map[string]any, s state) {
		metadataPlace().put(object, neverInherited().and(s.declared))
		template.put(object, s.witness)
	}
}

// neverInherited returns content that no rule propagates, for any owner.
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

// declare changes the declarations of the owners, like an administrator who edits them.
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

// play runs a subtest: it creates the child without content and then follows the owners from state to state, until they
// declare nothing. carried tells whether the rule carries the column.
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

// at returns the state with this number. The last state is empty: it has no witness.
func (l *descent) at(i int) state {
	if i == len(l.script.states)-1 {
		return state{}
	}
	return state{declared: l.script.states[i], witness: content{labelColumn: {witnessKey: strconv.Itoa(i)}}, byClass: i == 2}
}

// bear creates the child. With webhooks, it must inherit in the same write.
func (l *descent) bear(expect func(Gomega, *unstructured.Unstructured)) {
	l.t.Helper()
	if l.path.admission && l.cached {
		l.Eventually(func(g Gomega) {
			child := l.child.DeepCopy()
			g.Expect(l.Client.Create(l.ctx, child, client.DryRunAll)).To(Succeed())
			expect(g, child)
		}).WithTimeout(patience).WithPolling(20*time.Millisecond).Should(Succeed(), "in a create, when the caches have the owner")
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

// follow waits until the child has the declarations of its owners: with the loop without a write, with webhooks in the next write.
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

// touch changes a label of the test on an object, like a user who changes something else, and reads the answer into the object.
func (l *descent) touch(object *unstructured.Unstructured) error {
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:"%d"}}}`, touched, time.Now().UnixNano())
	return l.Client.Patch(l.ctx, object, client.RawPatch(types.MergePatchType, []byte(patch)))
}

// change patches an object like a user.
func (l *descent) change(object *unstructured.Unstructured, how func(map[string]any)) {
	l.t.Helper()
	l.get(object)
	before := object.DeepCopy()
	how(object.Object)
	l.Expect(l.Client.Patch(l.ctx, object, client.MergeFrom(before))).To(Succeed())
}

// controlledBy adds an owner reference to an object, as its controller or as another owner.
func controlledBy(object, owner *unstructured.Unstructured, controller bool) *unstructured.Unstructured {
	ref := *metav1.NewControllerRef(owner, owner.GroupVersionKind())
	if !controller {
		ref.Controller, ref.BlockOwnerDeletion = nil, nil
	}
	object.SetOwnerReferences(append(slices.Clone(object.GetOwnerReferences()), ref))
	return object
}
