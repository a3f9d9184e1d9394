// SPDX-License-Identifier: Apache-2.0

package scenes

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/heirloom-dev/heirloom/test/controlplane"
)

// clusterAPI is the user of Cluster API. In workload clusters, Heirloom acts as the same user, with another user agent.
const clusterAPI = "cluster-api"

// auditPolicy logs a line for each request of this user, and no request of other users: the log costs less than the measured programs.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: None, resources: [{group: coordination.k8s.io}, {group: "", resources: [events]}, {group: events.k8s.io}]}
- {level: Metadata, users: [` + clusterAPI + `]}
- {level: None}
`

// requests are numbers of Cluster API's requests, without watches, leases and events. onNodes counts conflicts on Nodes only: Cluster API
// also has conflicts with itself, when it writes the status of Machines.
type requests struct{ all, conflicts, onNodes float64 }

func (r requests) plus(other requests) requests {
	return requests{r.all + other.all, r.conflicts + other.conflicts, r.onNodes + other.onNodes}
}

func (r requests) minus(earlier requests) requests {
	return requests{r.all - earlier.all, r.conflicts - earlier.conflicts, r.onNodes - earlier.onNodes}
}

// auditLog counts Cluster API's requests to an API server.
type auditLog struct {
	path    string
	offset  int64
	counted requests
}

// audit returns the options of an API server that logs Cluster API's requests.
func (w *world) audit(of string) (controlplane.Options, error) {
	path := filepath.Join(w.dir, of+"-audit.log")
	policy := path + ".policy.yaml"
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return controlplane.Options{}, fmt.Errorf("writing an audit policy: %w", err)
	}
	w.audits = append(w.audits, &auditLog{path: path})
	return controlplane.Options{APIServerArgs: map[string][]string{"audit-log-path": {path}, "audit-policy-file": {policy}}}, nil
}

// requests returns the numbers of Cluster API's requests to both API servers.
func (w *world) requests() (requests, error) {
	sum := requests{}
	for _, log := range w.audits {
		if err := log.read(); err != nil {
			return sum, err
		}
		sum = sum.plus(log.counted)
	}
	return sum, nil
}

// read counts the lines that were added since the last read.
func (l *auditLog) read() (err error) {
	l.offset, err = controlplane.ReadAudit(l.path, l.offset, func(event *auditv1.Event) {
		if event.Verb == "watch" || strings.HasPrefix(event.UserAgent, "heirloom/") {
			return
		}
		l.counted.all++
		if event.ResponseStatus == nil || event.ResponseStatus.Code != http.StatusConflict {
			return
		}
		l.counted.conflicts++
		if event.ObjectRef.Resource == "nodes" {
			l.counted.onNodes++
		}
	})
	return err
}
