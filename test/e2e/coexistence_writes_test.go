// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
)

// writeCounts are numbers of write requests, by verb and resource.
type writeCounts map[string]int

// total leaves out those of a status: conditions come in more or fewer steps.
func (c writeCounts) total() int {
	total := 0
	for what, count := range c {
		if !strings.HasSuffix(what, "/status") {
			total += count
		}
	}
	return total
}

// created leaves all out but what has been created.
func (c writeCounts) created() writeCounts {
	created := writeCounts{}
	for what, count := range c {
		if strings.HasPrefix(what, "create ") {
			created[what] = count
		}
	}
	return created
}

// writes counts the write requests of Cluster API, without events and leases.
func (w *world) writes() writeCounts {
	log, err := os.Open(filepath.Join(w.dir, "audit.log"))
	w.Expect(err).NotTo(HaveOccurred())
	defer log.Close()
	counts := writeCounts{}
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var event struct {
			Verb, RequestURI string
			User             struct{ Username string }
			ObjectRef        struct{ Resource, Subresource string }
			ResponseStatus   struct{ Code int }
		}
		w.Expect(json.Unmarshal(lines.Bytes(), &event)).To(Succeed())
		if event.User.Username != "cluster-api" || !slices.Contains([]string{"create", "update", "patch", "delete"}, event.Verb) {
			continue
		}
		if event.ObjectRef.Resource == "events" || event.ObjectRef.Resource == "leases" {
			continue
		}
		switch {
		case strings.Contains(event.RequestURI, "dryRun="):
			event.Verb = "try to " + event.Verb
		case event.ResponseStatus.Code == http.StatusCreated:
			event.Verb = "create" // most of it is by server-side apply
		case event.Verb == "create":
			event.Verb = "fail to create"
		}
		counts[event.Verb+" "+strings.TrimSuffix(event.ObjectRef.Resource+"/"+event.ObjectRef.Subresource, "/")]++
	}
	w.Expect(lines.Err()).NotTo(HaveOccurred())
	return counts
}

// expectSameCreations expects that Cluster API has made as many objects of every kind in both worlds: no revision, no Machine
// and no template more.
func expectSameCreations(alone, together *world) {
	together.t.Helper()
	with := together.writes().created()
	together.Expect(with).To(HaveKey("create machines"))
	together.Expect(cmp.Diff(alone.writes().created(), with)).To(BeEmpty(), "creations (-without, +with)")
}
