// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

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

// since returns what has been added since then.
func (c writeCounts) since(earlier writeCounts) writeCounts {
	added := writeCounts{}
	for what, count := range c {
		if count > earlier[what] {
			added[what] = count - earlier[what]
		}
	}
	return added
}

// writes counts the write requests of Cluster API, without events and leases.
func (w *world) writes() writeCounts {
	return w.countWrites(func(what, _ string) string { return what })
}

// writesOfEach counts them for each object.
func (w *world) writesOfEach() writeCounts {
	return w.countWrites(func(what, name string) string { return what + " " + name })
}

// countWrites counts by what a function makes of verb and resource, and of the object's name.
func (w *world) countWrites(by func(what, name string) string) writeCounts {
	counts := writeCounts{}
	for _, path := range w.audited {
		log, err := os.Open(path)
		w.Expect(err).NotTo(HaveOccurred())
		defer log.Close()
		lines := bufio.NewScanner(log)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var event auditEvent
			w.Expect(json.Unmarshal(lines.Bytes(), &event)).To(Succeed())
			if event.isWrite() {
				counts[by(event.what(), event.ObjectRef.Name)]++
			}
		}
		w.Expect(lines.Err()).NotTo(HaveOccurred())
	}
	return counts
}

// auditEvent is what is needed of an entry of the audit log.
type auditEvent struct {
	Verb, RequestURI string
	User             struct{ Username string }
	ObjectRef        struct{ Resource, Subresource, Name string }
	ResponseStatus   struct{ Code int }
}

// isWrite tells whether Cluster API wrote something, or tried to.
func (e auditEvent) isWrite() bool {
	return e.User.Username == "cluster-api" && slices.Contains([]string{"create", "update", "patch", "delete"}, e.Verb) &&
		e.ObjectRef.Resource != "events" && e.ObjectRef.Resource != "leases"
}

// what returns verb and resource.
func (e auditEvent) what() string {
	verb := e.Verb
	switch {
	case strings.Contains(e.RequestURI, "dryRun="):
		verb = "try to " + verb
	case e.ResponseStatus.Code == http.StatusCreated:
		verb = "create" // most of it is by server-side apply
	case verb == "create":
		verb = "fail to create"
	}
	return verb + " " + strings.TrimSuffix(e.ObjectRef.Resource+"/"+e.ObjectRef.Subresource, "/")
}

// expectSameCreations expects that Cluster API has made as many objects of every kind in both worlds: no revision, no Machine
// and no template more.
func expectSameCreations(alone, together *world) {
	together.t.Helper()
	with := together.writes().created()
	together.Expect(with).To(HaveKey("create machines"))
	together.Expect(cmp.Diff(alone.writes().created(), with)).To(BeEmpty(), "creations (-without, +with)")
}

// expectStill expects a minute in which nothing changes and Cluster API repeats no request. It may be some time until then, as
// Cluster API learns of some things only when it looks again; where two write against each other, there is no such minute.
func (w *world) expectStill() {
	w.t.Helper()
	state, earlier, since := w.state(), w.writesOfEach(), time.Now()
	last := "none"
	w.Eventually(func(g Gomega) {
		now := w.state()
		if diff := cmp.Diff(state, now); diff != "" {
			state, earlier, since, last = now, w.writesOfEach(), time.Now(), diff
			w.t.Logf("not quiet yet (-before, +after):\n%s", diff)
		}
		g.Expect(time.Since(since)).To(BeNumerically(">=", time.Minute), "the last change (-before, +after):\n%s", last)
	}).WithTimeout(4 * time.Minute).WithPolling(5 * time.Second).Should(Succeed())
	// That it need not apply something again, it remembers of the object's version. After a change of a status, it applies the
	// same once more, as soon as anything wakes it.
	requests := w.writesOfEach().since(earlier)
	w.t.Logf("write requests of a quiet minute, which change nothing: %v", requests)
	for what, count := range requests {
		w.Expect(what).To(MatchRegexp("^(try to )?patch "), "a quiet minute")
		w.Expect(count).To(Equal(1), "%s, in a quiet minute", what)
	}
}

// quietState is what must not change in a quiet minute: versions, and what is inherited of Nodes, whose versions move with every
// heartbeat.
type quietState struct {
	Versions map[string]string
	Nodes    []string
}

func (w *world) state() quietState { return quietState{w.versions(), w.normalNodes()} }
