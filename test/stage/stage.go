// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/controlplane"
)

// Namespace is where the chart is installed.
const Namespace = "heirloom-system"

// Home is the name of the management cluster's own Cluster, and of that one's namespace, unless arguments say otherwise.
const Home = "home"

// ServiceAccount is the user as which Heirloom acts: the chart's RBAC gives it its rights.
const ServiceAccount = "system:serviceaccount:" + Namespace + ":heirloom"

// Options says what is on the stage.
type Options struct {
	// Program is the path of the heirloom binary.
	Program string
	// Dir is where logs, kubeconfigs and certificates are written.
	Dir string
	// Values go over those that the stage itself gives to the chart.
	Values map[string]any
	// Args are further arguments for the program.
	Args []string
	// Host is what API servers call the program by; 127.0.0.1 by default, for which a certificate of Heirloom's own cannot be.
	Host string
	// Env are further variables of its environment, each NAME=value.
	Env []string
	// FailClosed makes API servers wait 30 seconds for an answer, and refuse a write about which they get none: a test then finds in the
	// write itself what was answered. Without it, webhooks fail open, as those of the chart do. It does not go with WorkloadWebhook: Heirloom
	// registers no such webhook in a workload cluster.
	FailClosed bool
	// WorkloadWebhook gives workload clusters a URL of the webhooks.
	WorkloadWebhook bool
	// WithoutWebhooks leaves the webhook configurations out, so that only the loop acts.
	WithoutWebhooks bool
	// WithoutLoop keeps the program from becoming the leader, so that only the webhooks act.
	WithoutLoop bool
	// On is a control plane that runs already and that Stop leaves running. Nil: the stage has one of its own.
	On *controlplane.ControlPlane
	// WithoutProgram does not start the program; StartHeirloom does, later.
	WithoutProgram bool
	// ControlPlane are options of the control plane; CRDs default to Cluster API's. Those of providers that do not exist,
	// see controlplane.ProviderCRDPath, are always there.
	ControlPlane controlplane.Options
}

// Stage is a control plane with Heirloom on it.
type Stage struct {
	*controlplane.ControlPlane
	// Client is an administrator's.
	Client client.Client
	// Program is Heirloom; StartReplica starts others beside it.
	*program

	options Options
}

// New sets the stage.
func New(ctx context.Context, options Options) (*Stage, error) {
	s := &Stage{ControlPlane: options.On, options: options}
	if s.ControlPlane == nil {
		ofPlane, err := ControlPlaneOptions(ctx, options.ControlPlane)
		if err != nil {
			return nil, err
		}
		ofPlane.LogDir = options.Dir
		if s.ControlPlane, err = controlplane.Start(ctx, ofPlane); err != nil {
			return nil, err
		}
	}
	if err := s.set(ctx); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// ControlPlaneOptions returns options with the CRDs that a stage needs: Cluster API's, unless others are in them, and those of
// providers that do not exist.
func ControlPlaneOptions(ctx context.Context, options controlplane.Options) (controlplane.Options, error) {
	files, err := here()
	if err != nil {
		return options, err
	}
	crds := options.CRDPaths
	if len(crds) == 0 {
		crds = files.clusterAPI
	}
	options.CRDPaths = slices.Concat(crds, []string{files.providers})
	return options, ctx.Err()
}

func (s *Stage) set(ctx context.Context) error {
	var err error
	if s.Client, err = client.New(s.AdminConfig(), client.Options{Scheme: Scheme()}); err != nil {
		return fmt.Errorf("making an administrator's client: %w", err)
	}
	if err := s.prepareProgram(); err != nil {
		return err
	}
	if err := s.install(ctx); err != nil {
		return err
	}
	if err := s.releaseLease(ctx); err != nil {
		return err
	}
	if s.options.WithoutLoop {
		if err := s.holdLease(ctx); err != nil {
			return err
		}
	}
	if s.options.WithoutProgram {
		return nil
	}
	return s.StartHeirloom(ctx)
}

// Scheme knows the types of Kubernetes and of Cluster API.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, clusterv1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err) // two types of the same name: a fault of the build
		}
	}
	return scheme
}

// prepareProgram writes the kubeconfig of the ServiceAccount and chooses where the program listens.
func (s *Stage) prepareProgram() error {
	groups := []string{"system:serviceaccounts", "system:serviceaccounts:" + Namespace}
	if err := s.WriteKubeconfig(s.kubeconfig(), ServiceAccount, groups...); err != nil {
		return err
	}
	var err error
	s.program, err = s.newProgram("heirloom", s.options.Args)
	return err
}

func (s *Stage) kubeconfig() string {
	return filepath.Join(s.options.Dir, "heirloom.kubeconfig")
}

// install applies what the chart renders for a program that runs outside of the cluster.
func (s *Stage) install(ctx context.Context) error {
	namespaces := []string{Namespace}
	if watched, ok := s.options.Values["watchNamespace"].(string); ok && watched != "" {
		namespaces = append(namespaces, watched) // the chart puts a Role there
	}
	for _, name := range namespaces {
		err := s.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
		if client.IgnoreAlreadyExists(err) != nil {
			return fmt.Errorf("creating namespace %s: %w", name, err)
		}
	}
	ca, err := controlplane.ServingCertificate(s.options.Dir, cmp.Or(s.options.Host, "127.0.0.1"))
	if err != nil {
		return err
	}
	values := map[string]any{
		"deployment":        map[string]any{"enabled": false},
		"webhooks":          map[string]any{"url": s.WebhookURL},
		"managementCluster": Home + "/" + Home,
		"certificates": map[string]any{
			"mode":     "provided",
			"provided": map[string]any{"caBundle": base64.StdEncoding.EncodeToString(ca)},
		},
	}
	if s.options.WorkloadWebhook {
		values["workloadClusters"] = map[string]any{"webhookURL": s.WorkloadURL}
	}
	for key, value := range s.options.Values {
		values[key] = value
	}
	files, err := here()
	if err != nil {
		return err
	}
	objects, err := controlplane.RenderChart(ctx, files.chart, controlplane.ChartOptions{Namespace: Namespace, Values: values})
	if err != nil {
		return err
	}
	for _, object := range objects {
		if s.options.FailClosed && isWebhookConfiguration(object) {
			failClosed(object)
		}
	}
	if s.options.WithoutWebhooks {
		objects = slices.DeleteFunc(objects, isWebhookConfiguration)
	}
	return controlplane.Apply(ctx, s.Client, objects)
}

func isWebhookConfiguration(object unstructured.Unstructured) bool {
	return object.GroupVersionKind().Group == "admissionregistration.k8s.io"
}

// failClosed changes all webhooks of a configuration, see Options.FailClosed. The chart has no values for that.
func failClosed(configuration unstructured.Unstructured) {
	hooks, _ := configuration.Object["webhooks"].([]any)
	for _, hook := range hooks {
		if hook, ok := hook.(map[string]any); ok {
			hook["failurePolicy"], hook["timeoutSeconds"] = "Fail", int64(30)
		}
	}
}

// Dir is where the program's certificate and log are.
func (s *Stage) Dir() string {
	return s.options.Dir
}

// StartHeirloom starts the program and waits until it is ready.
func (s *Stage) StartHeirloom(ctx context.Context) error {
	return s.start(ctx, s.options.Program)
}

// StopHeirloom stops the program and leaves everything else.
func (s *Stage) StopHeirloom() error {
	return s.stop()
}

// HeirloomLog is the file with the log of the program.
func (s *Stage) HeirloomLog() string {
	return s.log
}

// Stop stops everything, apart from a control plane that the stage was set on.
func (s *Stage) Stop() error {
	var err error
	if s.program != nil {
		err = s.StopHeirloom()
	}
	if s.options.On != nil {
		return err
	}
	return errors.Join(err, s.ControlPlane.Stop())
}
