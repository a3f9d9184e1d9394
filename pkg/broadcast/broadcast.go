// SPDX-License-Identifier: Apache-2.0

// Package broadcast informs controllers about changes of things that are not API objects: an option of the rules, a schema.
package broadcast

import (
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

// Broadcaster sends an event to all its subscribers. The zero value has none.
type Broadcaster struct {
	subscribers []chan event.GenericEvent
}

// Subscribe returns a channel that gets an event with every Publish. It is called before the manager starts.
func (b *Broadcaster) Subscribe() <-chan event.GenericEvent {
	subscriber := make(chan event.GenericEvent, 1)
	b.subscribers = append(b.subscribers, subscriber)
	return subscriber
}

// Publish does not wait: an event that has not been received yet also stands for the next event.
func (b *Broadcaster) Publish() {
	for _, subscriber := range b.subscribers {
		select {
		case subscriber <- event.GenericEvent{Object: &clusterv1.Machine{}}: // controllers ignore events without an object
		default:
		}
	}
}
