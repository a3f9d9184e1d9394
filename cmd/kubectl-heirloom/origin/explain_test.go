// SPDX-License-Identifier: Apache-2.0

package origin

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	mdTemplate = "MachineDeployment default/md spec.template."
	msTemplate = "MachineSet default/ms spec.template."
)

func TestExplain(t *testing.T) {
	for name, test := range map[string]struct {
		family
		want string
	}{
		"a MachineSet inherits labels at its top and everything in its template": {
			family{
				md:    "label team=ml | annotation note=hi | taint gpu=true:NoSchedule",
				ms:    "label team=ml | annotation note=hi | taint gpu=true:NoSchedule",
				msTop: "label team=ml | annotation note=hi", managed: "heirloom template label team | manager annotation note",
			},
			`label team=ml <- ` + mdTemplate + `metadata.labels
			 annotation note=hi <- set here by manager
			 *template label team=ml <- ` + mdTemplate + `metadata.labels
			 template annotation note=hi <- ` + mdTemplate + `metadata.annotations
			 template taint gpu:NoSchedule=true <- ` + mdTemplate + `spec.taints`,
		},
		"a MachineSet inherits the MachineDeployment's own annotations, not its own labels": {
			family{
				mdTop: "label team=ml | annotation note=own | annotation deployment.kubernetes.io/revision=1", md: "annotation note=template", ms: ".",
				msTop: "label team=ml | annotation note=own", managed: "kubectl label team",
			},
			`label team=ml <- set here by kubectl
			 MISSING annotation deployment.kubernetes.io/revision=1 <- MachineDeployment default/md metadata.annotations
			 annotation note=own <- MachineDeployment default/md metadata.annotations
			 MISSING template annotation note=template <- ` + mdTemplate + `metadata.annotations`,
		},
		"a MachineSet without a MachineDeployment inherits nothing": {
			family{ms: "label team=ml", msTop: "label team=ml", managed: "kubectl label team | kubectl template label team"},
			`label team=ml <- set here by kubectl
			 template label team=ml <- set here by kubectl`,
		},
		"a Machine's inheritance is followed to the MachineDeployment": {
			family{
				md: "label team=ml | taint gpu=true:NoSchedule", ms: "label team=ml | label own=ms | taint gpu=true:NoSchedule",
				m: "label team=ml | label own=ms | taint gpu=true:NoSchedule", managed: "heirloom label team | heirloom taint gpu:NoSchedule",
			},
			`label own=ms <- ` + msTemplate + `metadata.labels
			 *label team=ml <- ` + mdTemplate + `metadata.labels
			 *taint gpu:NoSchedule=true <- ` + mdTemplate + `spec.taints`,
		},
		"what is not inherited was set by its field managers": {
			family{ms: ".", m: "label user=yes | taint mine:NoExecute | annotation gone=x", managed: "kubectl label user | helm label user | kubectl taint mine:NoExecute"},
			`label user=yes <- set here by helm, kubectl
			 annotation gone=x <- unknown
			 taint mine:NoExecute= <- set here by kubectl`,
		},
		"another value than the declared one says so": {
			family{md: "label team=ml", ms: "label team=ml", m: "label team=mine", managed: "kubectl label team"},
			`DIFFERS label team=mine <- set here by kubectl; ` + mdTemplate + `metadata.labels declares "ml"`,
		},
		"another propagation than the declared one says so": {
			family{md: ".", ms: "taint gpu=true:NoSchedule@OnInitialization", m: "taint gpu=true:NoSchedule@Always"},
			`DIFFERS taint gpu:NoSchedule=true <- unknown; ` + msTemplate + `spec.taints declares "true" (OnInitialization)`,
		},
		"bookkeeping is not inherited, though the owner has the same": {
			family{ms: "annotation kubectl.kubernetes.io/x=1", m: "annotation kubectl.kubernetes.io/x=1", managed: "kubectl annotation kubectl.kubernetes.io/x"},
			`annotation kubectl.kubernetes.io/x=1 <- set here by kubectl`,
		},
		"a Machine's typed taint comes from the annotation that declares it": {
			family{
				md: "annotation taints.heirloom.dev/always=gpu:NoSchedule", ms: "annotation taints.heirloom.dev/always=gpu:NoSchedule",
				m: "annotation taints.heirloom.dev/always=gpu:NoSchedule | taint gpu:NoSchedule",
			},
			`annotation taints.heirloom.dev/always=gpu:NoSchedule <- ` + mdTemplate + `metadata.annotations
			 taint gpu:NoSchedule= <- ` + mdTemplate + `metadata.annotations[taints.heirloom.dev/always]`,
		},
		"a Machine's own typed taint stays its own beside an annotation": {
			family{m: "annotation taints.heirloom.dev/always=gpu=a:NoSchedule | taint gpu=b:NoSchedule", ms: ".", managed: "kubectl taint gpu:NoSchedule"},
			`annotation taints.heirloom.dev/always=gpu=a:NoSchedule <- unknown
			 taint gpu:NoSchedule=b <- set here by kubectl`,
		},
		"a Node inherits what the rules let through": {
			family{
				md:   "label node.cluster.x-k8s.io/pool=a",
				ms:   "label node.cluster.x-k8s.io/pool=a",
				m:    "label node.cluster.x-k8s.io/pool=a | label team=ml | annotation node.cluster.x-k8s.io/own=m",
				node: "label node.cluster.x-k8s.io/pool=a | label team=ml | annotation node.cluster.x-k8s.io/own=m", managed: "kubelet label team",
			},
			`label node.cluster.x-k8s.io/pool=a <- ` + mdTemplate + `metadata.labels
			 label team=ml <- set here by kubelet
			 annotation node.cluster.x-k8s.io/own=m <- Machine default/m metadata.annotations`,
		},
		"a Node inherits taints of either propagation and form": {
			family{
				md: "taint a:NoSchedule", ms: "taint a:NoSchedule", m: "taint a:NoSchedule | taint b:NoExecute@OnInitialization | annotation taints.heirloom.dev/initialize=c=d:NoSchedule",
				node: "taint a:NoSchedule | taint b:NoExecute | taint c=d:NoSchedule",
			},
			`taint a:NoSchedule= <- ` + mdTemplate + `spec.taints
			 taint b:NoExecute= <- Machine default/m spec.taints
			 taint c:NoSchedule=d <- Machine default/m metadata.annotations[taints.heirloom.dev/initialize]`,
		},
		"on a Node the Machine's typed taint goes before an annotation": {
			family{m: "taint gpu=a:NoSchedule | annotation taints.heirloom.dev/always=gpu=b:NoSchedule", node: "taint gpu=a:NoSchedule"},
			`taint gpu:NoSchedule=a <- Machine default/m spec.taints`,
		},
		"who wrote a Node's list of taints last need not have set each of them": {
			family{m: ".", node: "taint foreign:NoSchedule", managed: "heirloom taints"},
			`taint foreign:NoSchedule= <- unknown (the list of taints was last written by heirloom)`,
		},
		"what an operator's regex brought to a Node is known from what was recorded": {
			family{
				m: "label team=ml | label zone=x", managed: "kubelet label zone | heirloom annotation heirloom.dev/labels-from-machine",
				node: "label team=ml | label zone=x | annotation heirloom.dev/labels-from-machine=team",
			},
			`label team=ml <- Machine default/m metadata.labels
			 label zone=x <- set here by kubelet
			 *annotation heirloom.dev/labels-from-machine=team <- records what came from Machine default/m`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := test.build(t).explain(t)
			if err != nil {
				t.Fatal(err)
			}
			var want []string
			for line := range strings.Lines(test.want) {
				want = append(want, strings.TrimSpace(line))
			}
			if diff := cmp.Diff(want, lines(e)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestNotes(t *testing.T) {
	for name, test := range map[string]struct {
		family
		change func(*objects)
		want   []string
	}{
		"the object to edit is the top of the chain": {
			family: family{md: ".", ms: ".", m: "."},
			want:   []string{"To change what is inherited, edit MachineDeployment default/md (spec.template)."},
		},
		"the object to edit is the Cluster where a ClusterClass is at work": {
			family: family{md: ".", ms: ".", m: "label topology.cluster.x-k8s.io/owned="},
			change: func(f *objects) { f.machine.Spec.ClusterName = "c" },
			want: []string{
				"What Cluster default/c declares is not known: it does not exist any more, or does not name the objects below it.",
				"To change what is inherited, edit Cluster default/c (spec.topology).",
			},
		},
		"an owner that does not exist is named as the end of the way": {
			family: family{m: "."},
			change: func(f *objects) { f.machine.OwnerReferences[0].Kind = "KubeadmControlPlane" },
			want: []string{"Machine default/m is controlled by KubeadmControlPlane ms, which does not exist any more, belongs to another Cluster " +
				"or is no owner of such an object: what came from there is shown as set on Machine default/m."},
		},
		"an object that is left alone says why": {
			family: family{md: ".", ms: ".", m: "annotation cluster.x-k8s.io/paused=", node: "."},
			want: []string{
				"Heirloom leaves the object alone for now, because of Machine default/m: it is paused.",
				"To change what is inherited, edit MachineDeployment default/md (spec.template).",
			},
		},
		"so does a Node that is being deleted, which inherits until it is gone": {
			family: family{md: ".", ms: ".", m: "annotation cluster.x-k8s.io/paused=", node: "."},
			change: func(f *objects) {
				f.node.DeletionTimestamp, f.node.Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, []string{"x/y"}
			},
			want: []string{
				"Heirloom leaves the object alone for now, because of Machine default/m: it is paused.",
				"To change what is inherited, edit MachineDeployment default/md (spec.template).",
			},
		},
		"taints that may not be inherited are named": {
			family: family{m: "annotation taints.heirloom.dev/always=gpu"},
			change: func(f *objects) { f.machine.OwnerReferences = nil },
			want: []string{`Left out: Machine default/m (metadata.annotations): annotation taints.heirloom.dev/always: taint "gpu" has no effect: ` +
				"expected <key>=<value>:<effect> or <key>:<effect>."},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := test.build(t)
			if test.change != nil {
				test.change(f)
			}
			e, err := f.explain(t)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, e.Notes); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// A MachineSet that is left alone lacks a label at its top and in its template, for the same reason.
func TestAReasonIsThatOfAllPlaces(t *testing.T) {
	e := &Explanation{Entries: []Entry{
		{Kind: Label, Key: "team", Status: Missing}, {Kind: Label, Key: "other", Status: Missing}, {Kind: Annotation, Key: "team", Status: Missing},
		{Kind: TemplateLabel, Key: "team", Status: Differs, Reason: "Paused", Message: "Because."},
	}}
	e.shareReasons()
	var got []string
	for _, entry := range e.Entries {
		got = append(got, entry.Reason+entry.Message)
	}
	if diff := cmp.Diff([]string{"PausedBecause.", "", "", "PausedBecause."}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestManagedFieldsThatCannotBeRead(t *testing.T) {
	f := family{m: "."}.build(t)
	f.machine.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "x", FieldsV1: metav1.NewFieldsV1("{")}}
	if _, err := readManagers(f.machine.ManagedFields); err == nil || !strings.Contains(err.Error(), `manager "x"`) {
		t.Errorf("broken managed fields: got %v", err)
	}
}
