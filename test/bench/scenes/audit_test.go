// SPDX-License-Identifier: Apache-2.0

package scenes

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/heirloom-dev/heirloom/test/controlplane"
)

// clusterAPI is the user as which Cluster API acts. In workload clusters Heirloom acts as the same user, with another user agent.
const clusterAPI = "cluster-api"

// auditPolicy asks for a line for each request of that user, and for none that anybody else makes: it costs less than what is measured.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: None, resources: [{group: coordination.k8s.io}, {group: "", resources: [events]}, {group: events.k8s.io}]}
- {level: Metadata, users: [` + clusterAPI + `]}
- {level: None}
`

// requests are numbers of Cluster API's requests, without watches, leases and events. onNodes are those conflicts that writes of Nodes
// have: Cluster API has others with itself, when it writes the status of Machines.
type requests struct{ all, writes, conflicts, onNodes float64 }

func (r requests) plus(other requests) requests {
	return requests{r.all + other.all, r.writes + other.writes, r.conflicts + other.conflicts, r.onNodes + other.onNodes}
}

func (r requests) minus(earlier requests) requests {
	return requests{r.all - earlier.all, r.writes - earlier.writes, r.conflicts - earlier.conflicts, r.onNodes - earlier.onNodes}
}

// auditLog counts what Cluster API asks of an API server.
type auditLog struct {
	path    string
	offset  int64
	counted requests
}

// audit returns options of an API server that notes what Cluster API asks.
func (w *world) audit(of string) (controlplane.Options, error) {
	path := filepath.Join(w.dir, of+"-audit.log")
	policy := path + ".policy.yaml"
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return controlplane.Options{}, fmt.Errorf("writing an audit policy: %w", err)
	}
	w.audits = append(w.audits, &auditLog{path: path})
	return controlplane.Options{APIServerArgs: map[string][]string{"audit-log-path": {path}, "audit-policy-file": {policy}}}, nil
}

// requests are Cluster API's, of both API servers.
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

// read counts what has been added since it was read last.
func (l *auditLog) read() error {
	log, err := os.Open(l.path)
	if err != nil {
		return fmt.Errorf("opening an audit log: %w", err)
	}
	defer log.Close()
	if _, err := log.Seek(l.offset, io.SeekStart); err != nil {
		return fmt.Errorf("reading an audit log: %w", err)
	}
	for lines := bufio.NewReader(log); ; {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil // what has no end yet is read next time
		}
		if err != nil {
			return fmt.Errorf("reading an audit log: %w", err)
		}
		l.offset += int64(len(line))
		var event auditEvent
		if err := json.Unmarshal(line, &event); err != nil {
			return fmt.Errorf("decoding an audit log: %w", err)
		}
		l.count(event)
	}
}

// auditEvent is what is needed of an entry of the audit log.
type auditEvent struct {
	Verb, UserAgent string
	ObjectRef       struct{ Resource string }
	ResponseStatus  struct{ Code int }
}

func (l *auditLog) count(event auditEvent) {
	if event.Verb == "watch" || strings.HasPrefix(event.UserAgent, "heirloom/") {
		return
	}
	l.counted.all++
	if slices.Contains([]string{"create", "update", "patch", "delete"}, event.Verb) {
		l.counted.writes++
	}
	if event.ResponseStatus.Code != http.StatusConflict {
		return
	}
	l.counted.conflicts++
	if event.ObjectRef.Resource == "nodes" {
		l.counted.onNodes++
	}
}
