// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"context"
	"errors"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

func TestFindManagementCluster(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", errors.New("no"))
	for _, tc := range []struct {
		name  string
		flags string
		// proofs are the candidates; an empty one is no proof, any other that is not "yes" an error.
		proofs map[string]string
		err    error
		want   string
		note   string
		fails  string
	}{
		{name: "one proves it", proofs: map[string]string{"self": "yes", "other": "", "away": "no route"}, want: "ns/self"},
		{name: "none", proofs: map[string]string{"other": ""}, want: "/"},
		{name: "one in a namespace that is not watched", flags: "--namespace=other", proofs: map[string]string{"self": "yes"}, want: "/"},
		{name: "no candidate", want: "/"},
		{name: "told", flags: "--management-cluster=ns/told", proofs: map[string]string{"self": "yes"}, want: "ns/told"},
		{name: "told that there is none", flags: "--management-cluster=", proofs: map[string]string{"self": "yes"}, want: "/"},
		{
			name: "unreachable", proofs: map[string]string{"self": "no route", "other": "", "away": "no Secret"}, want: "/",
			note: "Whether a Cluster is the management cluster itself is unknown (ns/away: no Secret; ns/self: no route): if one is, give it with --management-cluster.",
		},
		{
			name: "several", proofs: map[string]string{"b": "yes", "a": "yes"}, want: "/",
			note: "Several Clusters seem to be the management cluster itself (ns/a and ns/b), so that its Nodes inherit nothing: choose one with --management-cluster.",
		},
		{
			name: "forbidden", err: fmt.Errorf("listing the Nodes of the management cluster: %w", forbidden), want: "/",
			note: "Which Cluster is the management cluster itself is unknown, because you may not list what tells it (nodes is forbidden: no): if there is one, give it with --management-cluster.",
		},
		{name: "broken", err: errors.New("no route"), want: "/", fails: "no route"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			s, err := (&Flags{ServerFlags: []string{tc.flags}}).fromFlags()
			Expect(err).NotTo(HaveOccurred())
			err = s.FindManagementCluster(t.Context(), func(context.Context) (clusters []*clusterv1.Cluster, _ error) {
				for name := range tc.proofs {
					clusters = append(clusters, &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}})
				}
				return clusters, tc.err
			}, func(_ context.Context, cluster types.NamespacedName) (bool, error) {
				switch proof := tc.proofs[cluster.Name]; proof {
				case "yes", "":
					return proof == "yes", nil
				default:
					return false, errors.New(proof)
				}
			})
			if tc.fails != "" {
				Expect(err).To(MatchError(tc.fails))
				return
			}
			Expect(err).NotTo(HaveOccurred())
			Expect(s.Config.ManagementClusterKey.String()).To(Equal(tc.want))
			if tc.note == "" {
				Expect(s.Notes).To(BeEmpty())
			} else {
				Expect(s.Notes).To(Equal([]string{tc.note}))
			}
		})
	}
}
