// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	return w.countWrites(func(of written) string { return of.what })
}

// writesOfEach counts them for each object.
func (w *world) writesOfEach() writeCounts {
	return w.countWrites(func(of written) string { return of.what + " " + of.name })
}

// countWrites counts by what a function makes of a write.
func (w *world) countWrites(by func(written) string) writeCounts {
	counts := writeCounts{}
	for _, log := range w.audits {
		w.Expect(log.read()).To(Succeed())
		for of, count := range log.counts {
			counts[by(of)] += count
		}
	}
	return counts
}

// written is verb and resource, and the object's name, of a write.
type written struct{ what, name string }

// auditLog counts what Cluster API writes, by an API server's audit log.
type auditLog struct {
	path   string
	offset int64
	counts map[written]int
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
	if l.counts == nil {
		l.counts = map[written]int{}
	}
	for lines := bufio.NewReaderSize(log, 1<<20); ; {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil // what has no end yet is read next time
		}
		if err != nil {
			return fmt.Errorf("reading an audit log: %w", err)
		}
		l.offset += int64(len(line))
		if !bytes.Contains(line, []byte(`"`+managersUser+`"`)) {
			continue // most of it is not worth decoding
		}
		var event auditEvent
		if err := json.Unmarshal(line, &event); err != nil {
			return fmt.Errorf("decoding an audit log: %w", err)
		}
		if event.isWrite() {
			l.counts[written{event.what(), event.ObjectRef.Name}]++
		}
	}
}

// managersUser is the user as which Cluster API's managers act.
const managersUser = "cluster-api"

// auditEvent is what is needed of an entry of the audit log.
type auditEvent struct {
	Verb, RequestURI string
	User             struct{ Username string }
	ObjectRef        struct{ Resource, Subresource, Name string }
	ResponseStatus   struct{ Code int }
}

// isWrite tells whether Cluster API wrote something, or tried to.
func (e auditEvent) isWrite() bool {
	return e.User.Username == managersUser && slices.Contains([]string{"create", "update", "patch", "delete"}, e.Verb) &&
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
