// SPDX-License-Identifier: Apache-2.0

package pace_test

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/heirloom-dev/heirloom/pkg/pace"
)

func TestNext(t *testing.T) {
	const two, early, unread = "the number of Clusters at a time, 2 (--no-execute-clusters)", "an earlier wave, in which Cluster ", "a Cluster whose Nodes have not been read yet"
	type clusters = []pace.Cluster
	for name, tc := range map[string]struct {
		clusters clusters
		want     map[string]string
	}{
		"by name": {
			clusters{{Name: "c", Waits: true}, {Name: "b", Waits: true}, {Name: "a", Waits: true}, {Name: "d"}},
			map[string]string{"a": "", "b": "", "c": two},
		},
		"Clusters under way go on": {
			clusters{{Name: "c", Waits: true, UnderWay: true}, {Name: "b", Waits: true}, {Name: "a", Waits: true}},
			map[string]string{"c": "", "a": "", "b": two},
		},
		"no more of them than the limit": {
			clusters{{Name: "a", UnderWay: true}, {Name: "b", Waits: true, UnderWay: true}, {Name: "c", Waits: true, UnderWay: true}},
			map[string]string{"a": "", "b": "", "c": two},
		},
		"wave by wave": {
			clusters{{Name: "a", Wave: 2, Waits: true}, {Name: "b", Wave: 1, Waits: true}},
			map[string]string{"a": early + "b is not over", "b": ""},
		},
		"a wave that is done, but not for long enough": {
			clusters{{Name: "a", Wave: 2, Waits: true}, {Name: "b", Wave: 1, UnderWay: true}},
			map[string]string{"a": early + "b is not over", "b": ""},
		},
		"a halted Cluster holds the next wave, and its place": {
			clusters{{Name: "a", Wave: 1, Waits: true, UnderWay: true, Halted: true}, {Name: "b", Wave: 1, Waits: true}, {Name: "c", Wave: 1, Waits: true}, {Name: "d", Wave: 2, Waits: true}},
			map[string]string{"a": "", "b": "", "c": two, "d": early + "a is not over"},
		},
		"a Cluster that was paused before takes no place": {
			clusters{{Name: "a", Waits: true, Halted: true}, {Name: "b", Waits: true}, {Name: "c", Waits: true}, {Name: "d", Waits: true}},
			map[string]string{"a": "", "b": "", "c": "", "d": two},
		},
		"nobody begins before the Clusters of earlier waves have been read": {
			clusters{{Name: "a", Wave: 1, Waits: true}, {Name: "b", Wave: 1, Unknown: true}, {Name: "c", Wave: 1, Waits: true, UnderWay: true}},
			map[string]string{"a": unread, "c": ""},
		},
		"a Cluster does not wait for its own Nodes to be read": {
			clusters{{Name: "a", Wave: 1, Waits: true, Unknown: true}, {Name: "b", Wave: 2, Waits: true}},
			map[string]string{"a": "", "b": early + "a is not over"},
		},
		"a later wave takes no place of an earlier wave": {
			clusters{{Name: "a", Wave: 9, Waits: true, UnderWay: true, Halted: true}, {Name: "b", Wave: 9, UnderWay: true}, {Name: "c", Wave: 1, Waits: true}},
			map[string]string{"a": "", "b": two, "c": ""},
		},
		"the Clusters of later waves do not matter": {
			clusters{{Name: "a", Wave: 1, Waits: true}, {Name: "b", Wave: 2, Unknown: true}},
			map[string]string{"a": ""},
		},
	} {
		NewWithT(t).Expect(pace.Next(tc.clusters, 2)).To(Equal(tc.want), name)
	}
}
