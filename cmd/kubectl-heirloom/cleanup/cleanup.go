// SPDX-License-Identifier: Apache-2.0

// Package cleanup is the command "cleanup" for people at a terminal: it takes the settings from the running server, describes its plan, and
// asks for confirmation. pkg/cleanup cleans up everything, as for the server's own command. A single object gets a label, and the running
// server does the rest.
package cleanup

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/settings"
	"github.com/heirloom-dev/heirloom/pkg/cleanup"
)

// Check makes sure that the settings of the server are known. one says that a single object is cleaned up. The names of the objects to stop
// come from the Deployment: given settings may belong to a Helm release with another name, whose missing objects would seem to be stopped.
func Check(ctx context.Context, reader client.Reader, s *settings.Settings, namespace string, dryRun, one bool) error {
	if !s.Known {
		return fmt.Errorf(`a cleanup needs the settings of Heirloom. %s If all settings are or were the defaults, use --server-flags=""`,
			strings.Join(s.Notes, " "))
	}
	if s.Deployment.Name == "" {
		found, err := settings.Deployments(ctx, reader, namespace)
		if err != nil && !dryRun {
			return fmt.Errorf("looking for Heirloom's Deployment: %w", err)
		}
		if len(found) > 0 {
			running := settings.Of(found)
			s.Deployment, s.Others, s.Config.WebhookConfiguration = running.Deployment, running.Others, running.Config.WebhookConfiguration
			s.Config.LeaderElectNamespace = running.Config.LeaderElectNamespace
			s.Config.WorkloadWebhookKeyName = cmp.Or(running.Config.WorkloadWebhookKeyName, s.Config.WorkloadWebhookKeyName)
		}
	}
	s.Config.LeaderElectNamespace = cmp.Or(s.Config.LeaderElectNamespace, namespace)
	d := &appsv1.Deployment{}
	switch {
	case len(s.Others) > 0:
		return fmt.Errorf("found several Heirlooms, such as %s and %s (use --heirloom-namespace)", s.Deployment, s.Others[0])
	case dryRun || one:
		return nil
	case s.Config.LeaderElectNamespace == "":
		return errors.New("the namespace of the leader's Lease is unknown: set --heirloom-namespace to the namespace in which Heirloom is or was installed")
	case s.Config.LeaderElect || s.Deployment.Name == "":
		return nil
	default:
		if err := reader.Get(ctx, s.Deployment, d); err != nil || d.Status.Replicas == 0 {
			return client.IgnoreNotFound(err)
		}
		return fmt.Errorf("without leader election, no Lease shows when Heirloom has stopped: stop it first, and wait until its Pods are gone:\n"+
			"  kubectl scale deployment %s --namespace %s --replicas=0", d.Name, d.Namespace)
	}
}

const (
	shows   = "--dry-run=client lists them all."
	removed = "Labels, annotations, taints and fields without another owner are removed. Pods can then be scheduled to Nodes whose taints are removed.\n" + shows
)

// Describe describes a cleanup of everything.
func Describe(s settings.Settings, what cleanup.Options) string {
	scope := "in all namespaces"
	if len(s.Config.Namespaces) > 0 {
		scope = "in namespace " + strings.Join(s.Config.Namespaces, ", ")
	}
	if s.Config.WatchFilter != "" {
		scope += ", with watch filter " + s.Config.WatchFilter
	}
	text := fmt.Sprintf("This gives up everything that Heirloom owns in this management cluster and on the Nodes of all workload clusters "+
		"(%s; settings of %s).\n", scope, s.Origin)
	if what.Stop {
		text += fmt.Sprintf("It deletes the webhook configurations %[1]q and scales Deployment %[2]s/%[1]s to 0 first.\n",
			s.Config.WebhookConfiguration, s.Config.LeaderElectNamespace)
	}
	if what.KeepValues {
		return text + "Labels, annotations, taints and fields stay without an owner: nothing removes them later, even if you no longer declare them.\n" + shows
	}
	return text + removed
}

// Ask asks for confirmation.
func Ask(in io.Reader, out io.Writer, terminal bool, description string) error {
	if !terminal {
		return errors.New("no terminal to ask for confirmation: use --yes to clean up without it, or --dry-run=client to look first")
	}
	_, _ = fmt.Fprintf(out, "%s\n\nContinue? [y/N] ", description)
	answer, _ := bufio.NewReader(in).ReadString('\n') // a failed read counts as no
	if slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(answer))) {
		return nil
	}
	return errors.New("not confirmed: nothing was cleaned up")
}
