// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/version"
)

// Labels of the chart's Deployment.
const (
	nameLabel      = "app.kubernetes.io/name"
	partOfLabel    = "app.kubernetes.io/part-of"
	componentLabel = "app.kubernetes.io/component"
	versionLabel   = "app.kubernetes.io/version"

	heirloom  = "heirloom"
	component = "manager"
	// usual is the namespace in which Heirloom is installed where nothing speaks against it.
	usual = "heirloom-system"
)

// giveThem ends notes about settings that the plugin cannot read.
const giveThem = "give them with --values or --server-flags"

// running returns the settings of the running server.
func (f *Flags) running(ctx context.Context, reader client.Reader) (Settings, error) {
	found, err := Deployments(ctx, reader, f.Namespace)
	if len(found) > 0 {
		return ofDeployments(found), nil
	}
	s, wrong := (&Flags{}).fromFlags()
	if wrong != nil {
		return Settings{}, wrong
	}
	s.Origin = "the defaults"
	switch {
	case apierrors.IsForbidden(err):
		s.note("The server's settings are unknown, because you may not list Deployments, so the defaults are assumed: "+
			"use --heirloom-namespace if you may list those of one namespace, or %s.", giveThem)
	case err != nil:
		return Settings{}, fmt.Errorf("looking for Heirloom's Deployment: %w", err)
	case f.Namespace != "":
		s.note("The server's settings are unknown, because there is no Heirloom in namespace %s, so the defaults are assumed: "+
			"use another --heirloom-namespace, or %s.", f.Namespace, giveThem)
	default:
		s.note("The server's settings are unknown, because Heirloom has no Deployment in this cluster, so the defaults are assumed: "+
			"if it runs elsewhere, %s.", giveThem)
	}
	return s, nil
}

// Deployments returns those of Heirloom in the namespace. Without one, it returns those of all namespaces or, if you may not list
// these, of the usual one. The first is the one that the settings are about.
func Deployments(ctx context.Context, reader client.Reader, namespace string) ([]appsv1.Deployment, error) {
	found, err := deployments(ctx, reader, namespace, usual, client.MatchingLabels{componentLabel: component})
	return slices.DeleteFunc(found, func(d appsv1.Deployment) bool {
		return d.Labels[partOfLabel] != heirloom && d.Labels[nameLabel] != heirloom // commonLabels may replace the first
	}), err
}

// deployments lists Deployments in the namespace. Without one, it lists those of all namespaces or, if that is forbidden, of the
// namespace that is usual.
func deployments(ctx context.Context, reader client.Reader, namespace, usual string, labels client.MatchingLabels) ([]appsv1.Deployment, error) {
	list := &appsv1.DeploymentList{}
	err := reader.List(ctx, list, labels, client.InNamespace(namespace))
	if apierrors.IsForbidden(err) && namespace == "" {
		if inUsual := reader.List(ctx, list, labels, client.InNamespace(usual)); inUsual == nil && len(list.Items) > 0 {
			err = nil
		}
	}
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list.Items, func(a, b appsv1.Deployment) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return list.Items, nil
}

// ofDeployments returns the settings of the first Deployment.
func ofDeployments(found []appsv1.Deployment) Settings {
	d := found[0]
	manager := ManagerOf(&d)
	parsed := parseLeniently(slices.Concat(manager.Command[min(1, len(manager.Command)):], manager.Args))
	s := Settings{
		Config: parsed.config, Known: true, Deployment: client.ObjectKeyFromObject(&d),
		Version: versionOf(manager.Image, d.Labels[versionLabel]),
	}
	s.Origin = "Deployment " + s.Deployment.String()
	// The Pod finds its own namespace, and the chart gives the webhook configurations the name of the Deployment.
	s.Config.LeaderElectNamespace = cmp.Or(s.Config.LeaderElectNamespace, d.Namespace)
	if !parsed.fs.Changed("webhook-configuration") {
		s.Config.WebhookConfiguration = d.Name
	}
	if len(found) > 1 {
		for _, other := range found[1:] {
			s.Others = append(s.Others, client.ObjectKeyFromObject(&other))
		}
		s.note("%s", Several(s.Deployment, s.Others))
	}
	s.compare(version.String())
	s.noteFlags(parsed, slices.Concat(manager.Command, manager.Args))
	return s
}

// HandlesAll reports whether a Heirloom handles the objects of all namespaces and watch filters.
func HandlesAll(d *appsv1.Deployment) bool {
	config := ofDeployments([]appsv1.Deployment{*d}).Config
	return config.Namespace == "" && config.WatchFilter == ""
}

// Several says which one of several Heirlooms an answer is about.
func Several(about types.NamespacedName, others []types.NamespacedName) string {
	var names []string
	for _, other := range others {
		names = append(names, other.String())
	}
	return fmt.Sprintf("There are several Heirlooms, and this answer is about %s (others: %s): choose one with --heirloom-namespace.",
		about, strings.Join(names, ", "))
}

func (s *Settings) noteFlags(parsed lenient, arguments []string) {
	if len(parsed.unknown) > 0 {
		s.note("The server has flags that this plugin does not know (%s), so the server is newer or older: use the plugin of the server's release.",
			strings.Join(parsed.unknown, ", "))
	}
	if len(parsed.refused) > 0 {
		s.note("This plugin does not understand the server's value of %s and assumes the default: "+
			"use the plugin of the server's release, or %s.", strings.Join(parsed.refused, ", "), giveThem)
	}
	if slices.ContainsFunc(arguments, func(argument string) bool { return strings.Contains(argument, "$(") }) {
		s.note("The server's flags use environment variables, which this plugin does not resolve: %s.", giveThem)
	}
}

// ManagerOf returns the container of a manager.
func ManagerOf(d *appsv1.Deployment) corev1.Container {
	containers := d.Spec.Template.Spec.Containers
	if at := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == component }); at >= 0 {
		return containers[at]
	}
	if len(containers) > 0 {
		return containers[0]
	}
	return corev1.Container{}
}
