// SPDX-License-Identifier: Apache-2.0

package resync

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
)

// noteLimit is how many bytes the note of an Event can have. API servers refuse longer ones (NoteLengthLimit in Kubernetes'
// pkg/apis/core/validation), and client-go's recorders do not truncate them.
const noteLimit = 1024

// brief records Events whose notes are never too long.
type brief struct{ events.EventRecorder }

// Brief returns a recorder that truncates long notes, such as an error that names a thousand labels.
func Brief(recorder events.EventRecorder) events.EventRecorder {
	return brief{recorder}
}

// Eventf implements events.EventRecorder.
func (b brief) Eventf(regarding, related runtime.Object, eventType, reason, action, note string, args ...any) {
	b.EventRecorder.Eventf(regarding, related, eventType, reason, action, "%s", cut(fmt.Sprintf(note, args...)))
}

func cut(note string) string {
	const more = " …"
	if len(note) <= noteLimit {
		return note
	}
	return strings.ToValidUTF8(note[:noteLimit-len(more)], "") + more
}
