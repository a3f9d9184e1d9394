// SPDX-License-Identifier: Apache-2.0

package owners

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	fakediscovery "k8s.io/client-go/discovery/fake"
	clienttesting "k8s.io/client-go/testing"
)

// discovered is discovery of an API server that counts.
type discovered struct {
	*fakediscovery.FakeDiscovery
	asked atomic.Int32
	err   error
	// during is called while somebody looks.
	during func()
}

func serving(kinds ...string) *discovered {
	d := &discovered{FakeDiscovery: &fakediscovery.FakeDiscovery{Fake: &clienttesting.Fake{}}, during: func() {}}
	list := &metav1.APIResourceList{GroupVersion: acme}
	for _, kind := range kinds {
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: kind + "s", Kind: kind, Namespaced: true})
	}
	d.Resources = []*metav1.APIResourceList{list}
	return d
}

func (d *discovered) ServerGroupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	d.asked.Add(1)
	d.during()
	if d.err != nil {
		return nil, nil, d.err
	}
	return d.FakeDiscovery.ServerGroupsAndResources()
}

func controlPlaneKind(kind string) schema.GroupKind {
	return schema.GroupKind{Group: "controlplane.cluster.x-k8s.io", Kind: kind}
}

// However many kinds somebody makes up, the API server is asked once for a while what it serves.
func TestUnknownKindsAreRemembered(t *testing.T) {
	Expect := NewWithT(t).Expect
	server := serving("AcmeControlPlane")
	chain := Chain{Reader: holds(t, controlPlane("c")), Mapper: &Kinds{Discovery: server, UnknownFor: time.Hour}}
	for i := range 500 {
		object, _, err := chain.ControlPlane(t.Context(), "ns", &metav1.OwnerReference{APIVersion: acme, Kind: fmt.Sprintf("Forged%d", i), Name: "cp"})
		Expect(err).NotTo(HaveOccurred())
		Expect(object).To(BeNil())
		object, _, err = chain.ControlPlane(t.Context(), "ns", &metav1.OwnerReference{APIVersion: acme, Kind: "AcmeControlPlane", Name: "cp"})
		Expect(err).NotTo(HaveOccurred())
		Expect(object.GetAPIVersion()).To(Equal(acme))
	}
	Expect(server.asked.Load()).To(BeEquivalentTo(1))
}

// A kind that comes later is found when the while is over, and one that is known stays known without a look.
func TestKindsThatComeLater(t *testing.T) {
	Expect := NewWithT(t).Expect
	server := serving("AcmeControlPlane")
	kinds := &Kinds{Discovery: server}
	_, err := kinds.RESTMapping(controlPlaneKind("NewControlPlane"))
	Expect(apimeta.IsNoMatchError(err)).To(BeTrue())
	server.Resources = serving("AcmeControlPlane", "NewControlPlane").Resources
	mapping, err := kinds.RESTMapping(controlPlaneKind("NewControlPlane"))
	Expect(err).NotTo(HaveOccurred())
	Expect(mapping.GroupVersionKind.GroupVersion().String()).To(Equal(acme))
	Expect(server.asked.Load()).To(BeEquivalentTo(2))
	_, err = kinds.RESTMapping(controlPlaneKind("AcmeControlPlane"))
	Expect(err).NotTo(HaveOccurred())
	Expect(server.asked.Load()).To(BeEquivalentTo(2))
}

// A provider may be upgraded to another version while Heirloom runs. Nobody waits for the look that finds it.
func TestKindsThatAreServedInAnotherVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Expect := NewWithT(t).Expect
		server := serving("AcmeControlPlane")
		kinds := &Kinds{Discovery: server, KnownFor: time.Minute}
		version := func() string {
			mapping, err := kinds.RESTMapping(controlPlaneKind("AcmeControlPlane"))
			Expect(err).NotTo(HaveOccurred())
			return mapping.GroupVersionKind.Version
		}
		Expect(version()).To(Equal("v1beta1"))
		server.Resources[0].GroupVersion = "controlplane.cluster.x-k8s.io/v1beta2"
		<-time.After(time.Minute - 1)
		Expect(version()).To(Equal("v1beta1"))
		synctest.Wait()
		Expect(server.asked.Load()).To(BeEquivalentTo(1))
		<-time.After(1)
		Expect(version()).To(Equal("v1beta1"), "it does not wait")
		synctest.Wait()
		Expect(version()).To(Equal("v1beta2"))
		Expect(server.asked.Load()).To(BeEquivalentTo(2))

		server.err = errors.New("away")
		<-time.After(time.Minute)
		for range 3 {
			Expect(version()).To(Equal("v1beta2"), "what was known stays")
			synctest.Wait()
		}
		Expect(server.asked.Load()).To(BeEquivalentTo(3))
	})
}

// A discovery that fails is no kind that is gone, and is not tried by each request.
func TestDiscoveryThatFails(t *testing.T) {
	Expect := NewWithT(t).Expect
	server := serving("AcmeControlPlane")
	server.err = errors.New("away")
	kinds := &Kinds{Discovery: server, UnknownFor: time.Hour}
	for range 10 {
		_, err := kinds.RESTMapping(controlPlaneKind("AcmeControlPlane"))
		Expect(err).To(MatchError("away"))
	}
	Expect(server.asked.Load()).To(BeEquivalentTo(1))

	server.err, kinds.UnknownFor = nil, 0
	_, err := kinds.RESTMapping(controlPlaneKind("AcmeControlPlane"))
	Expect(err).NotTo(HaveOccurred())
	server.err, kinds.UnknownFor = errors.New("away"), time.Hour
	kinds.last.at = time.Time{}
	for range 10 {
		_, err = kinds.RESTMapping(controlPlaneKind("NewControlPlane"))
		Expect(err).To(MatchError("away"))
		_, err = kinds.RESTMapping(controlPlaneKind("AcmeControlPlane"))
		Expect(err).NotTo(HaveOccurred(), "it is known")
	}
	Expect(server.asked.Load()).To(BeEquivalentTo(3))
}

// While the API server does not answer, requests wait for one look, and not for long.
func TestDiscoveryThatHangs(t *testing.T) {
	Expect := NewWithT(t).Expect
	server, release := serving("AcmeControlPlane"), make(chan struct{})
	server.during = func() { <-release }
	kinds := &Kinds{Discovery: server, UnknownFor: time.Hour}
	var asking sync.WaitGroup
	for i := range 500 {
		asking.Go(func() {
			_, err := kinds.RESTMapping(controlPlaneKind(fmt.Sprintf("Forged%d", i)))
			Expect(err).To(MatchError("the API server does not say in time what it serves"))
		})
	}
	asking.Wait()
	Expect(server.asked.Load()).To(BeEquivalentTo(1))
	close(release)
	Eventually := NewWithT(t).Eventually
	Eventually(func() error {
		_, err := kinds.RESTMapping(controlPlaneKind("AcmeControlPlane"))
		return err
	}).Should(Succeed())
	Expect(server.asked.Load()).To(BeEquivalentTo(1))
}
