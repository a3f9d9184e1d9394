// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// startTimeout only ends a start that hangs. A start takes ten seconds of CPU, and several API servers may start at the same time.
const startTimeout = 5 * time.Minute

// Options describes a ControlPlane. The zero value describes a control plane without CRDs and with the default programs.
type Options struct {
	// CRDPaths are files and directories whose CustomResourceDefinitions are installed; see CAPICRDPaths.
	CRDPaths []string
	// APIServerArgs are kube-apiserver flags by name, without dashes. They replace the flags that envtest and this package set. A flag
	// without values is left out.
	APIServerArgs map[string][]string
	// Assets is the directory with etcd and kube-apiserver. Empty: the directory in KUBEBUILDER_ASSETS.
	Assets string
	// LogDir is the directory of etcd.log, kube-apiserver.log and audit.log. Empty: a directory that Stop removes.
	LogDir string
}

// ForWorkload returns the options of a control plane for a workload cluster. HEIRLOOM_WORKLOAD_ASSETS may name a directory, like
// KUBEBUILDER_ASSETS, with programs of another version of Kubernetes than the management cluster's.
func ForWorkload(options Options) Options {
	options.Assets = cmp.Or(options.Assets, os.Getenv("HEIRLOOM_WORKLOAD_ASSETS"))
	return options
}

// ControlPlane is an etcd and a kube-apiserver with the authorizers Node and RBAC and the admission plugin
// NodeRestriction, like a real cluster. It is safe for concurrent use.
type ControlPlane struct {
	// AuditLog is a file to which the API server writes one line of JSON per request that it has answered.
	AuditLog string

	env     envtest.Environment
	dir     string // certificates and data
	admin   *rest.Config
	version string
	initial int64 // the revision of etcd after the start

	mu       sync.Mutex // guards the fields below, and env against concurrent calls of AddUser
	kubelets []*Kubelet
}

// Start starts a control plane and installs the CRDs. When it returns, the API server serves all of them. The control plane runs until
// Stop, or until this process ends in any way.
func Start(ctx context.Context, options Options) (*ControlPlane, error) {
	cp := &ControlPlane{}
	if err := cp.start(ctx, options); err != nil {
		return nil, errors.Join(fmt.Errorf("starting the control plane: %w", err), cp.Stop())
	}
	return cp, nil
}

func (cp *ControlPlane) start(ctx context.Context, options Options) error {
	if err := countStart(); err != nil {
		return err
	}
	var err error
	if cp.dir, err = os.MkdirTemp("", "controlplane"); err != nil {
		return err
	}
	if err := cp.setFlags(options); err != nil {
		return err
	}
	if err := cp.run(options); err != nil {
		return err
	}
	c, err := discovery.NewDiscoveryClientForConfig(cp.admin)
	if err != nil {
		return err
	}
	info, err := c.ServerVersion()
	if err != nil {
		return fmt.Errorf("asking for the API server's version: %w", err)
	}
	cp.version = info.GitVersion
	if err := cp.InstallCRDs(ctx, options.CRDPaths...); err != nil {
		return err
	}
	return cp.remember()
}

// setFlags sets the API server's flags and writes its audit policy.
func (cp *ControlPlane) setFlags(options Options) error {
	cp.AuditLog = filepath.Join(cmp.Or(options.LogDir, cp.dir), "audit.log")
	const policy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]\n"
	policyFile := filepath.Join(cp.dir, "audit-policy.yaml")
	if err := os.WriteFile(policyFile, []byte(policy), 0o600); err != nil {
		return err
	}
	flags := cp.env.ControlPlane.GetAPIServer().Configure().
		Set("authorization-mode", "Node", "RBAC").
		Set("enable-admission-plugins", "NodeRestriction").
		Set("profiling", "false").
		Set("audit-log-path", cp.AuditLog).
		Set("audit-policy-file", policyFile)
	for name, values := range options.APIServerArgs {
		if len(values) == 0 {
			flags.Disable(name)
		} else {
			flags.Set(name, values...)
		}
	}
	return nil
}

// run starts etcd and the API server.
func (cp *ControlPlane) run(options Options) error {
	server, etcd := cp.env.ControlPlane.GetAPIServer(), &envtest.Etcd{DataDir: filepath.Join(cp.dir, "data")}
	cp.env.ControlPlane.Etcd, server.CertDir = etcd, cp.dir
	for name, set := range map[string]func(path string, log io.Writer){
		"kube-apiserver": func(path string, log io.Writer) { server.Path, server.Out, server.Err = path, log, log },
		"etcd":           func(path string, log io.Writer) { etcd.Path, etcd.Out, etcd.Err = path, log, log },
	} {
		path, err := options.program(name)
		if err != nil {
			return err
		}
		script := filepath.Join(cp.dir, name)
		const launch = "#!/bin/sh\necho $$ >\"$0.pid\"\nexec /bin/sh -c '%s' '%s' \"$@\"\n"
		if err := os.WriteFile(script, fmt.Appendf(nil, launch, watchdog(cp.dir), path), 0o700); err != nil {
			return err
		}
		log, err := os.OpenFile(filepath.Join(cmp.Or(options.LogDir, cp.dir), name+".log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		defer func() { _ = log.Close() }() // the program has opened it, too
		set(script, log)
	}
	cp.env.ControlPlaneStartTimeout, cp.env.UseExistingCluster = startTimeout, ptr.To(false)
	if _, err := cp.env.Start(); err != nil {
		return err
	}
	var err error
	cp.admin, err = cp.User("admin", "system:masters")
	return err
}

// Stop stops the kubelets that still run, ends the API server and etcd at once, even with connected clients, and removes their data.
func (cp *ControlPlane) Stop() error {
	err := errors.Join(cp.stopKubelets(), cp.env.Stop())
	if cp.dir == "" {
		return err
	}
	return errors.Join(err, os.RemoveAll(cp.dir))
}

func (cp *ControlPlane) stopKubelets() error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	var errs []error
	for _, kubelet := range cp.kubelets {
		errs = append(errs, kubelet.Stop())
	}
	cp.kubelets = nil
	return errors.Join(errs...)
}

// InstallCRDs installs the CustomResourceDefinitions in files and directories, and waits until the API server serves all of them.
func (cp *ControlPlane) InstallCRDs(_ context.Context, paths ...string) error {
	_, err := envtest.InstallCRDs(cp.admin, envtest.CRDInstallOptions{Paths: paths, ErrorIfPathMissing: true, MaxTime: startTimeout})
	return err
}

// AdminConfig returns a copy of the configuration of a user in group system:masters. Like all configurations of this package, it
// sets no client-side rate limit.
func (cp *ControlPlane) AdminConfig() *rest.Config {
	return rest.CopyConfig(cp.admin)
}

// User returns a configuration with a client certificate for a user in these groups.
func (cp *ControlPlane) User(name string, groups ...string) (*rest.Config, error) {
	user, err := cp.addUser(name, groups)
	if err != nil {
		return nil, err
	}
	config := user.Config()
	config.Host = strings.TrimSuffix(config.Host, "/")
	return config, nil
}

// Kubeconfig returns the configuration of User as the bytes of a kubeconfig file.
func (cp *ControlPlane) Kubeconfig(name string, groups ...string) ([]byte, error) {
	user, err := cp.addUser(name, groups)
	if err != nil {
		return nil, err
	}
	return user.KubeConfig()
}

// WriteKubeconfig writes the kubeconfig of a user to a file that only its owner can read.
func (cp *ControlPlane) WriteKubeconfig(path, name string, groups ...string) error {
	kubeconfig, err := cp.Kubeconfig(name, groups...)
	if err != nil {
		return err
	}
	return os.WriteFile(path, kubeconfig, 0o600)
}

func (cp *ControlPlane) addUser(name string, groups []string) (*envtest.AuthenticatedUser, error) {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	return cp.env.AddUser(envtest.User{Name: name, Groups: groups}, &rest.Config{QPS: -1})
}

// Version returns the version of the API server, such as v1.36.3.
func (cp *ControlPlane) Version() string {
	return cp.version
}

// AtLeast reports whether the API server is of Kubernetes 1.<minor> or later.
func (cp *ControlPlane) AtLeast(minor uint) bool {
	return version.MustParseGeneric(cp.version).AtLeast(version.MajorMinor(1, minor))
}

// ServesAdmissionPolicies reports whether the API server serves MutatingAdmissionPolicies in v1, as Kubernetes does since 1.36.
func (cp *ControlPlane) ServesAdmissionPolicies() bool {
	return cp.AtLeast(36)
}

// PIDs returns the process IDs of the API server and of its etcd.
func (cp *ControlPlane) PIDs() []int {
	var pids []int
	for _, name := range []string{"kube-apiserver", "etcd"} {
		raw, _ := os.ReadFile(filepath.Join(cp.dir, name+".pid")) // it exists as long as the program
		if pid, err := strconv.Atoi(strings.TrimSpace(string(raw))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// countStart adds a line to the file in HEIRLOOM_API_SERVERS, which counts the API servers that several processes start in one run.
// Without the variable it does nothing.
func countStart() error {
	path := os.Getenv("HEIRLOOM_API_SERVERS")
	if path == "" {
		return nil
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("counting API servers: %w", err)
	}
	_, err = fmt.Fprintln(file, os.Getpid()) // one write, so that lines of several processes do not mix
	return errors.Join(err, file.Close())
}
