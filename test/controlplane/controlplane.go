// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// startTimeout only ends a start that hangs; if a program exits, the wait ends at once. A start takes ten seconds of CPU, and a dozen
// API servers may start at the same time.
const startTimeout = 5 * time.Minute

// Options describes a ControlPlane. The zero value describes a control plane without CRDs and with the default programs.
type Options struct {
	// CRDPaths are files and directories whose CustomResourceDefinitions are installed; see CAPICRDPaths.
	CRDPaths []string
	// APIServerArgs are kube-apiserver flags by name, without dashes. They replace the flags that this package sets. A flag without
	// values is left out.
	APIServerArgs map[string][]string
	// AuditLog is a file to which the API server writes one line of JSON per request that it has answered.
	AuditLog string
	// Assets is the directory with etcd and kube-apiserver. Empty: the directory in KUBEBUILDER_ASSETS.
	Assets string
	// LogDir is the directory of etcd.log and kube-apiserver.log. Empty: a directory that Stop removes.
	LogDir string
}

// ControlPlane is an etcd and a kube-apiserver with the authorizers Node and RBAC and the admission plugin
// NodeRestriction, like a real cluster. It is safe for concurrent use.
type ControlPlane struct {
	dir    string // certificates and data
	host   string
	ca     *keyPair // of clients and of the API server
	admin  *rest.Config
	store  store
	served served
	// initial are the keys of the objects that etcd stores from the start.
	initial map[string]bool

	mu           sync.Mutex // guards the fields below
	etcd, server *Process
	kubelets     []*Kubelet
}

// Start starts a control plane and installs the CRDs. When it returns, the API server serves all of them.
// ctx limits only the start: the control plane runs until Stop, or until this process ends in any way.
func Start(ctx context.Context, options Options) (*ControlPlane, error) {
	if err := countStart(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	cp := &ControlPlane{}
	if err := cp.start(ctx, options); err != nil {
		return nil, errors.Join(fmt.Errorf("starting the control plane: %w", err), cp.Stop())
	}
	return cp, nil
}

func (cp *ControlPlane) start(ctx context.Context, options Options) error {
	var err error
	if cp.dir, err = TempDir("controlplane"); err != nil {
		return err
	}
	if options.LogDir == "" {
		options.LogDir = cp.dir
	}
	if err := cp.makeCertificates(); err != nil {
		return err
	}
	if cp.store.url, err = cp.startEtcd(ctx, options); err != nil {
		return err
	}
	if err := cp.startServer(ctx, cp.store.url, options); err != nil {
		return err
	}
	if cp.admin, err = cp.User("admin", "system:masters"); err != nil {
		return err
	}
	if err := cp.waitReady(ctx); err != nil {
		return err
	}
	if err := cp.ask(ctx); err != nil {
		return err
	}
	if err := cp.remember(ctx); err != nil {
		return err
	}
	return cp.InstallCRDs(ctx, options.CRDPaths...)
}

// waitReady waits until the API server is ready and has the namespace default.
func (cp *ControlPlane) waitReady(ctx context.Context) error {
	c, err := rest.HTTPClientFor(cp.admin)
	if err != nil {
		return fmt.Errorf("making a client of the API server: %w", err)
	}
	defer c.CloseIdleConnections()
	for _, path := range []string{"/readyz", "/api/v1/namespaces/default"} {
		if err := cp.server.waitAnswer(ctx, c, cp.host+path); err != nil {
			return err
		}
	}
	return nil
}

// startEtcd starts etcd and returns the URL that it serves.
func (cp *ControlPlane) startEtcd(ctx context.Context, options Options) (url string, err error) {
	path, err := options.program("etcd")
	if err != nil {
		return "", err
	}
	ports, err := FreePorts(2)
	if err != nil {
		return "", err
	}
	url = fmt.Sprintf("http://127.0.0.1:%d", ports[0])
	cp.etcd, err = StartProcess(context.WithoutCancel(ctx), path, []string{
		"--data-dir=" + filepath.Join(cp.dir, "etcd"), "--unsafe-no-fsync",
		"--listen-client-urls=" + url, "--advertise-client-urls=" + url, fmt.Sprintf("--listen-peer-urls=http://127.0.0.1:%d", ports[1]),
	}, filepath.Join(options.LogDir, "etcd.log"))
	if err != nil {
		return "", err
	}
	return url, cp.etcd.WaitReady(ctx, url+"/health")
}

// Stop stops the kubelets that still run, ends the API server and etcd at once, even with connected clients, and removes their data.
func (cp *ControlPlane) Stop() error {
	errs := []error{cp.stopKubelets()}
	cp.mu.Lock()
	defer cp.mu.Unlock()
	for _, process := range []*Process{cp.server, cp.etcd} {
		if process == nil {
			continue
		}
		if err := process.Kill(); err != nil {
			errs = append(errs, fmt.Errorf("stopping the control plane: %w", err))
		}
	}
	cp.server, cp.etcd = nil, nil
	if cp.dir != "" {
		errs = append(errs, os.RemoveAll(cp.dir))
	}
	return errors.Join(errs...)
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

// answers returns an error unless the response to a GET of the URL has status 200.
func answers(ctx context.Context, c *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	response, err := c.Do(request)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return errors.Join(errors.New(response.Status), response.Body.Close())
	}
	return response.Body.Close()
}

// PIDs returns the process IDs of the API server and of its etcd.
func (cp *ControlPlane) PIDs() []int {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	return []int{cp.server.PID(), cp.etcd.PID()}
}
