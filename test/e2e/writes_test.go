// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"net/http"
	"slices"
	"strings"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/heirloom-dev/heirloom/test/controlplane"
)

// writeCounts are numbers of write requests, by verb and resource.
type writeCounts map[string]int

// total leaves out writes of a status: conditions change in more or fewer steps.
func (c writeCounts) total() int {
	total := 0
	for what, count := range c {
		if !strings.HasSuffix(what, "/status") {
			total += count
		}
	}
	return total
}

// of returns the counts with this prefix.
func (c writeCounts) of(prefix string) writeCounts {
	some := writeCounts{}
	for what, count := range c {
		if strings.HasPrefix(what, prefix) {
			some[what] = count
		}
	}
	return some
}

// writesIn counts the writes of a user in each Namespace, according to an API server's audit log, without events and leases.
func writesIn(auditLog, user string) (map[string]writeCounts, error) {
	counts := map[string]writeCounts{}
	_, err := controlplane.ReadAudit(auditLog, 0, func(event *auditv1.Event) {
		of := event.ObjectRef
		if event.User.Username != user || !slices.Contains([]string{"create", "update", "patch", "delete"}, event.Verb) ||
			of.Resource == "events" || of.Resource == "leases" {
			return
		}
		if counts[of.Namespace] == nil {
			counts[of.Namespace] = writeCounts{}
		}
		counts[of.Namespace][whatOf(event)]++
	})
	return counts, err
}

// whatOf returns the verb and the resource of a request.
func whatOf(event *auditv1.Event) string {
	verb := event.Verb
	switch {
	case strings.Contains(event.RequestURI, "dryRun="):
		verb = "try to " + verb
	case event.ResponseStatus != nil && event.ResponseStatus.Code == http.StatusCreated:
		verb = "create" // most creates are server-side applies
	case verb == "create":
		verb = "fail to create"
	}
	return verb + " " + strings.TrimSuffix(event.ObjectRef.Resource+"/"+event.ObjectRef.Subresource, "/")
}
