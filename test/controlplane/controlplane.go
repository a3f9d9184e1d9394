// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// startTimeout is generous: two cores may be compiling a test binary meanwhile.
const startTimeout = time.Minute

// Options says how a ControlPlane differs from the plain one. The zero value is that plain one.
type Options struct {
	// CRDPaths are files and directories whose CustomResourceDefinitions are installed; see CAPICRDPaths.
	CRDPaths []string
	// APIServerArgs are kube-apiserver flags by name, without dashes. They replace what this package sets itself.
	APIServerArgs map[string][]string
	// AuditLog is a file to which the API server writes one line of JSON per request that it has answered.
	AuditLog string
	// LogDir is where etcd.log and kube-apiserver.log are written. Empty: nowhere.
	LogDir string
}

// ControlPlane is an etcd and a kube-apiserver with the authorizers Node and RBAC and the admission plugin
// NodeRestriction, as a real cluster has them. It is safe for concurrent use.
type ControlPlane struct {
	environment *envtest.Environment
	admin       *rest.Config
	logs        []*os.File

	mu       sync.Mutex // guards what follows, and envtest's certificate authority
	kubelets []*Kubelet
}

// Start starts a control plane and installs the CRDs; all of them are established when it returns.
// ctx bounds the start only: it is Stop that ends the control plane.
func Start(ctx context.Context, options Options) (*ControlPlane, error) {
	for _, name := range []string{"kube-apiserver", "etcd"} {
		if _, err := program(assetsVariable, name); err != nil {
			return nil, err
		}
	}
	cp := &ControlPlane{environment: newEnvironment(options.CRDPaths)}
	if err := cp.configure(options); err != nil {
		return nil, errors.Join(err, cp.closeLogs())
	}
	config, err := cp.environment.Start()
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting the control plane: %w", err), cp.Stop())
	}
	cp.admin = rest.CopyConfig(config)
	cp.admin.QPS = -1
	return cp, nil
}

func newEnvironment(crdPaths []string) *envtest.Environment {
	// Said outright, as otherwise USE_EXISTING_CLUSTER in the environment would aim tests at a real cluster.
	existing := false
	return &envtest.Environment{
		UseExistingCluster:       &existing,
		ControlPlaneStartTimeout: startTimeout,
		ControlPlaneStopTimeout:  startTimeout,
		ErrorIfCRDPathMissing:    true,
		CRDInstallOptions:        envtest.CRDInstallOptions{Paths: crdPaths, MaxTime: startTimeout},
	}
}

func (cp *ControlPlane) configure(options Options) error {
	server := cp.environment.ControlPlane.GetAPIServer()
	server.Configure().
		Set("authorization-mode", "Node,RBAC").
		Set("enable-admission-plugins", "NodeRestriction")
	if options.AuditLog != "" {
		policy, err := writeAuditPolicy(options.AuditLog)
		if err != nil {
			return err
		}
		server.Configure().Set("audit-log-path", options.AuditLog).Set("audit-policy-file", policy)
	}
	for name, values := range options.APIServerArgs {
		server.Configure().Set(name, values...)
	}
	if options.LogDir == "" {
		return nil
	}
	etcd := &envtest.Etcd{}
	cp.environment.ControlPlane.Etcd = etcd
	etcdLog, err := cp.createLog(options.LogDir, "etcd.log")
	if err != nil {
		return err
	}
	serverLog, err := cp.createLog(options.LogDir, "kube-apiserver.log")
	if err != nil {
		return err
	}
	etcd.Out, etcd.Err = etcdLog, etcdLog
	server.Out, server.Err = serverLog, serverLog
	return nil
}

func (cp *ControlPlane) createLog(dir, name string) (*os.File, error) {
	log, err := os.Create(filepath.Join(dir, name))
	if err != nil {
		return nil, fmt.Errorf("creating a log file: %w", err)
	}
	cp.logs = append(cp.logs, log)
	return log, nil
}

// writeAuditPolicy asks for one line per finished request, and returns the policy's path, which is beside the log.
func writeAuditPolicy(log string) (string, error) {
	const policy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]\n"
	path := log + ".policy.yaml"
	if err := os.WriteFile(path, []byte(policy), 0o600); err != nil {
		return "", fmt.Errorf("writing the audit policy: %w", err)
	}
	return path, nil
}

// Stop stops the kubelets that still run, then the API server and etcd, and removes their data.
func (cp *ControlPlane) Stop() error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	var errs []error
	// First, as the API server would wait for the watches of kubelets.
	for _, kubelet := range cp.kubelets {
		errs = append(errs, kubelet.Stop())
	}
	cp.kubelets = nil
	if err := cp.environment.Stop(); err != nil {
		errs = append(errs, fmt.Errorf("stopping the control plane: %w", err))
	}
	return errors.Join(append(errs, cp.closeLogs())...)
}

func (cp *ControlPlane) closeLogs() error {
	var errs []error
	for _, log := range cp.logs {
		errs = append(errs, log.Close())
	}
	cp.logs = nil
	return errors.Join(errs...)
}
