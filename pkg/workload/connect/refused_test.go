// SPDX-License-Identifier: Apache-2.0

package connect

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientsetfake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/heirloom-dev/heirloom/pkg/controllers"
)

// The ClusterCache retries a refused kubeconfig every half minute, like a cluster that cannot be reached. Each retry costs a read of the
// Secret. An hour of retries costs few writes: the recorder makes a series of equal Events, even if the tenant changes the cause.
func TestAKubeconfigThatStaysRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Expect := NewWithT(t).Expect
		const again, hour = 30 * time.Second, 120
		scheme := runtime.NewScheme()
		utilruntime.Must(corev1.AddToScheme(scheme))
		utilruntime.Must(clusterv1.AddToScheme(scheme))
		cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: red.Namespace, Name: red.Name}}
		reads := 0
		management := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cluster, secret("")).WithInterceptorFuncs(interceptor.Funcs{
			Get: func(ctx context.Context, inner client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
				if _, ok := object.(*corev1.Secret); ok {
					reads++
				}
				return inner.Get(ctx, key, object, options...)
			},
		}).Build()

		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		server := clientsetfake.NewClientset()
		broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: server.EventsV1()})
		defer broadcaster.Shutdown()
		Expect(broadcaster.StartRecordingToSinkWithContext(ctx)).To(Succeed())
		recorder := controllers.Brief(broadcaster.NewRecorder(scheme, "heirloom"))
		asked := kubeconfigs{Reader: management, refused: controllers.KubeconfigRefused(management, recorder)}

		for i := range hour {
			wrong := secret(leadsTo("https://red.example.com", fmt.Sprintf("{tokenFile: /%d}", i)))
			if i%2 == 0 {
				wrong = secret(leadsTo("https://red.example.com", fmt.Sprintf("{client-key: /%d}", i)))
			}
			Expect(management.Update(ctx, wrong)).To(Succeed())
			Expect(asked.Get(ctx, client.ObjectKeyFromObject(wrong), &corev1.Secret{})).To(MatchError(ContainSubstring("it is refused")))
			<-time.After(again)
		}
		Expect(reads).To(Equal(hour))
		writes := map[string]int{}
		for _, action := range server.Actions() {
			writes[action.GetVerb()]++
		}
		Expect(writes).To(And(HaveLen(2), HaveKeyWithValue("create", 1), HaveKeyWithValue("patch", BeNumerically("<=", 4))))
	})
}
