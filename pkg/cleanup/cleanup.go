// SPDX-License-Identifier: Apache-2.0

// Package cleanup cleans up everything that Heirloom owns or tracks, so that nothing is left when Heirloom is uninstalled: the fields of
// field manager heirloom in objects of Cluster API and of its providers, the entries in Heirloom's own annotations on Nodes, and the
// objects that Heirloom has created in workload clusters.
//
// Heirloom must not run meanwhile, because it would propagate the removed entries again. A cleanup follows the managed fields and
// annotations of the objects, not the rules, so it needs no owners. Object and Node clean up a single object; the loop calls them for
// objects that a user has told it to clean up.
package cleanup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/config"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

const (
	// stopTimeout limits the time that the leader may take to stop. By default, Helm gives a hook five minutes.
	stopTimeout = 2 * time.Minute
	// idleSeconds is the time, in seconds, without a leader before the loop counts as stopped: another replica that is also stopping may
	// lead for a moment.
	idleSeconds = 5
)

// Options select the objects of a cleanup and its mode.
type Options struct {
	// Stop stops Heirloom first: it deletes the webhook configurations and scales the Deployment of the same name to zero. Without it,
	// nothing is done while Heirloom runs.
	Stop bool
	// OnlyWebhookConfigurations deletes the webhook configurations, and does nothing else.
	OnlyWebhookConfigurations bool
	// OnlyWorkloadClusters deletes only the objects that admit Nodes in workload clusters. A workload cluster that does not answer is
	// reported, but is no error.
	OnlyWorkloadClusters bool
	// HookJob is the name of the chart's Job that runs this; empty outside of it. The Job does nothing unless somebody uninstalls.
	HookJob string
	Mode
}

// Mode says how an object is cleaned up.
type Mode struct {
	// KeepValues leaves labels, annotations, taints and fields where they are, without an owner.
	KeepValues bool
	// DryRun writes nothing. With ServerSide, the clients, which must be clients for dry runs, send the writes all the same.
	DryRun, ServerSide bool
}

// writes reports whether writes are sent to the API server.
func (m Mode) writes() bool { return !m.DryRun || m.ServerSide }

// Cleaner cleans up everything that Heirloom owns.
type Cleaner struct {
	Options
	// Config is Heirloom's own configuration. It has the namespace of the leader's Lease, which is also the namespace of the Deployment.
	Config *config.Config
	// Management is a client of the management cluster that knows Cluster API's types and reads from the API server.
	Management client.Client
	Discovery  discovery.DiscoveryInterface
	// Workload returns a client of a Cluster's workload cluster.
	Workload func(ctx context.Context, cluster types.NamespacedName) (client.Client, error)
	// Out gets a line for each object that is written, Progress all other messages to the user at the terminal.
	Out, Progress io.Writer
}

// Run cleans up everything, owners before their children. Its error lists the failures. A failure of an object does not stop the cleanup
// of others, and another run cleans up the rest.
func (r Cleaner) Run(ctx context.Context) error {
	s := &session{Cleaner: r}
	s.management = cluster{Client: r.Management, session: s}
	if r.HookJob != "" {
		why, err := s.nobodyUninstalls(ctx)
		if why != "" {
			s.note("Nothing was done: %s. Without Helm, uninstall as docs/uninstall.md says.", why)
		}
		if err != nil || why != "" {
			return err
		}
	}
	if err := s.stopWebhooks(ctx); err != nil || r.OnlyWebhookConfigurations {
		return err
	}
	stopped, err := s.stopLoop(ctx)
	if err != nil {
		return err
	}
	if !r.OnlyWorkloadClusters {
		if err := s.cleanUpManagement(ctx); err != nil {
			return err
		}
		s.failed(s.deleteKey(ctx))
	}
	s.cleanUpWorkloads(ctx)
	s.failed(s.stillStopped(ctx, stopped))
	if err := errors.Join(s.failures...); err != nil {
		return fmt.Errorf("not everything could be cleaned up; fix these errors, and run it again:\n%w", err)
	}
	return nil
}

// deleteKey deletes the Secret with the key of workload clusters' webhooks, if it exists.
func (s *session) deleteKey(ctx context.Context) error {
	secret := &corev1.Secret{}
	if s.Config.WorkloadWebhookKeyName.Name == "" {
		return nil
	}
	err := s.management.Get(ctx, s.Config.WorkloadWebhookKeyName, secret)
	if err == nil {
		err = s.management.Delete(ctx, secret, client.Preconditions{UID: &secret.UID})
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting the Secret of the key of workload clusters' webhooks: %w", err)
	}
	return nil
}

// stopWebhooks makes sure that no webhook of the management cluster injects removed entries again.
func (s *session) stopWebhooks(ctx context.Context) error {
	for _, configuration := range []client.Object{
		&admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfiguration{},
	} {
		err := s.management.Get(ctx, types.NamespacedName{Name: s.Config.WebhookConfiguration}, configuration)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return fmt.Errorf("looking for Heirloom's webhook configurations: %w", err)
		case s.Stop || s.OnlyWebhookConfigurations:
			if err := s.management.Delete(ctx, configuration); client.IgnoreNotFound(err) != nil {
				return err
			}
		case !s.DryRun:
			return fmt.Errorf("webhook configurations %q still exist, so objects would inherit removed entries again: "+
				"delete them, or use --stop", s.Config.WebhookConfiguration)
		}
	}
	return nil
}

// stopLoop makes sure that no replica of Heirloom leads, and returns the present Lease of the leader.
func (s *session) stopLoop(ctx context.Context) (stopped *coordinationv1.Lease, err error) {
	switch {
	case s.Stop && s.writes():
		return s.scaleDown(ctx)
	case s.DryRun:
		return nil, nil
	}
	if stopped, err = s.lease(ctx); err == nil && Leads(stopped, time.Now()) {
		err = fmt.Errorf("%s leads Heirloom, so objects would inherit removed entries again: "+
			"scale its Deployment to 0 and wait until its Pods are gone, or use --stop", *stopped.Spec.HolderIdentity)
	}
	return stopped, err
}

// scaleDown scales Heirloom's Deployment to zero, if it exists, and waits until there has been no leader for a while. The Lease of a
// leader with a different clock may look expired, but the leader renews it.
func (s *session) scaleDown(ctx context.Context) (lease *coordinationv1.Lease, err error) {
	deployment := &appsv1.Deployment{}
	deployment.Namespace, deployment.Name = s.Config.LeaderElectNamespace, s.Config.WebhookConfiguration
	scale := &autoscalingv1.Scale{ObjectMeta: deployment.ObjectMeta} // to zero
	name := client.ObjectKeyFromObject(deployment)
	switch err := s.management.SubResource("scale").Update(ctx, deployment, client.WithSubResourceBody(scale)); {
	case apierrors.IsNotFound(err):
		s.note("there is no Deployment %s to scale to 0", name)
	case err != nil:
		return nil, fmt.Errorf("scaling Deployment %s to 0: %w", name, err)
	case !s.DryRun:
		s.note("Deployment %s is scaled to 0; waiting for the loop to stop", name)
	}
	if s.DryRun {
		return nil, nil
	}
	version, idle := "", 0
	waited := wait.PollUntilContextTimeout(ctx, time.Second, stopTimeout, true, func(ctx context.Context) (bool, error) {
		if lease, err = s.lease(ctx); err != nil {
			return false, err
		}
		if idle++; Leads(lease, time.Now()) || lease.ResourceVersion != version {
			version, idle = lease.ResourceVersion, 0
		}
		return idle > idleSeconds, nil
	})
	if waited != nil && err == nil && ctx.Err() == nil {
		return nil, fmt.Errorf("%s still leads Heirloom after %s: check whether a controller scales Deployment %s up again, or Heirloom also runs elsewhere",
			ptr.Deref(lease.Spec.HolderIdentity, ""), stopTimeout, name)
	}
	return lease, waited
}

// stillStopped makes sure that no replica has led since the loop was stopped: somebody may have scaled the Deployment up again.
func (s *session) stillStopped(ctx context.Context, stopped *coordinationv1.Lease) error {
	if s.DryRun {
		return nil
	}
	lease, err := s.lease(ctx)
	if err == nil && lease.ResourceVersion != stopped.ResourceVersion {
		err = errors.New("the leader's Lease has changed: Heirloom ran meanwhile, and objects may have inherited removed entries again; " +
			"stop it, and run this again")
	}
	return err
}

// lease reads the leader's Lease. If it does not exist, the result is empty.
func (s *session) lease(ctx context.Context) (*coordinationv1.Lease, error) {
	lease, key := &coordinationv1.Lease{}, types.NamespacedName{Namespace: s.Config.LeaderElectNamespace, Name: s.Config.LeaderElectionID()}
	if err := s.management.Get(ctx, key, lease); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading the Lease %s of Heirloom's leader: %w", key, err)
	}
	return lease, nil
}

// Leads reports whether a replica of Heirloom holds the Lease.
func Leads(lease *coordinationv1.Lease, now time.Time) bool {
	lasts := time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second
	return ptr.Deref(lease.Spec.HolderIdentity, "") != "" && lease.Spec.RenewTime != nil && lease.Spec.RenewTime.Add(lasts).After(now)
}

// session is a run of a Cleaner. It collects failures, and is safe for concurrent use.
type session struct {
	Cleaner
	management cluster
	mu         sync.Mutex
	failures   []error
}

// did prints that an object has been cleaned up or deleted. In a dry run, it also prints the fields that the object would lose.
func (s *session) did(verb, kind string, key client.ObjectKey, where string, fields ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	line := strings.ToLower(kind) + "/" + key.Name + " " + verb
	if key.Namespace != "" {
		line += " in namespace " + key.Namespace
	}
	line += where
	if s.DryRun {
		line = strings.Join(append([]string{line + " (dry run)"}, fields...), "\n  ")
	}
	_, _ = fmt.Fprintln(s.Out, line) // if it fails, the reader is gone
}

// note prints a line of progress for the user.
func (s *session) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = fmt.Fprintf(s.Progress, format+"\n", args...)
}

// failed remembers a failure for the end of the run, unless err is nil.
func (s *session) failed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && len(err.Error()) > longest {
		err = errors.New(inherit.Shorten(err.Error(), longest))
	}
	s.failures = append(s.failures, err)
}

// longest is the maximum size of a failure or of an Event's note, in bytes: API servers of workload clusters may answer with any text,
// and the API server of the management cluster rejects a note of more than 1024 bytes.
const longest = 1020

// cluster is a client of the management cluster or of a workload cluster. It reports deletions, and deletes nothing in a dry run by the client.
type cluster struct {
	client.Client
	*session
	// where names a workload cluster, as the end of a sentence; empty for the management cluster.
	where string
}

// Delete implements client.Client.
func (c cluster) Delete(ctx context.Context, object client.Object, options ...client.DeleteOption) error {
	gvk, err := c.GroupVersionKindFor(object)
	if err == nil && c.writes() {
		err = c.Client.Delete(ctx, object, options...)
	}
	if err == nil {
		c.did("deleted", gvk.GroupKind().String(), client.ObjectKeyFromObject(object), c.where)
	}
	return err
}
