// SPDX-License-Identifier: Apache-2.0

// Package broadcast notifies controllers of changes to things that are not API objects, such as an option of the rules or a schema.
package broadcast

import (
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

// Broadcaster sends an event to all its subscribers. The zero value has no subscribers.
type Broadcaster struct {
	subscribers []chan event.GenericEvent
}

// Subscribe returns a channel that gets an event with every Publish. Call it before the manager starts.
func (b *Broadcaster) Subscribe() <-chan event.GenericEvent {
	subscriber := make(chan event.GenericEvent, 1)
	b.subscribers = append(b.subscribers, subscriber)
	return subscriber
}

// Publish sends an event to all subscribers without waiting. An event that a subscriber has not received yet also stands for the new
// event.
func (b *Broadcaster) Publish() {
	for _, subscriber := range b.subscribers {
		select {
		case subscriber <- event.GenericEvent{Object: &clusterv1.Machine{}}: // controllers ignore events without an object
		default:
		}
	}
}
