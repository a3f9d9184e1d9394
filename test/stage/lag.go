// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path"
	"sync"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// Lag is a proxy in front of an API server, behind which watches can be held back, so that caches are behind what is stored.
type Lag struct {
	server *httptest.Server

	mu    sync.Mutex
	gates map[string]*sync.RWMutex
}

// newLag puts a proxy between the API server and the clients that use the kubeconfig, and acts as the user in it.
func newLag(kubeconfig string) (*Lag, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading a kubeconfig: %w", err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("making a transport: %w", err)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, fmt.Errorf("reading the API server's address: %w", err)
	}
	l := &Lag{gates: map[string]*sync.RWMutex{}}
	l.server = httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1,
		ModifyResponse: func(response *http.Response) error {
			if response.Request.URL.Query().Get("watch") != "" {
				response.Body = held{ReadCloser: response.Body, gate: l.gate(path.Base(response.Request.URL.Path))}
			}
			return nil
		},
	})
	through := api.NewConfig()
	through.Clusters["lag"] = &api.Cluster{Server: l.server.URL}
	through.Contexts["lag"] = &api.Context{Cluster: "lag"}
	through.CurrentContext = "lag"
	if err := clientcmd.WriteToFile(*through, kubeconfig); err != nil {
		return nil, fmt.Errorf("writing a kubeconfig: %w", err)
	}
	return l, os.Chmod(kubeconfig, 0o600)
}

// Hold holds back what the watches of these resources, such as machinesets, would tell, until release is called.
func (l *Lag) Hold(resources ...string) (release func()) {
	for _, resource := range resources {
		l.gate(resource).Lock()
	}
	return sync.OnceFunc(func() {
		for _, resource := range resources {
			l.gate(resource).Unlock()
		}
	})
}

func (l *Lag) gate(resource string) *sync.RWMutex {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gates[resource] == nil {
		l.gates[resource] = &sync.RWMutex{}
	}
	return l.gates[resource]
}

func (l *Lag) stop() {
	if l != nil {
		l.server.CloseClientConnections()
		l.server.Close()
	}
}

// held delivers nothing while its gate is shut.
type held struct {
	io.ReadCloser
	gate *sync.RWMutex
}

// Read implements io.Reader.
func (h held) Read(p []byte) (int, error) {
	n, err := h.ReadCloser.Read(p)
	h.gate.RLock()
	defer h.gate.RUnlock()
	return n, err
}
