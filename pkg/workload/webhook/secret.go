// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/heirloom-dev/heirloom/pkg/rotation"
)

// The keys' names in the Secret, and the annotations with their times.
const (
	currentData  = "current"
	nextData     = "next"
	previousData = "previous"

	currentSinceAnnotation = "heirloom.dev/current-since"
	nextSinceAnnotation    = "heirloom.dev/next-since"
)

// keysIn reads the keys from their Secret. Its error names what is wrong with it and never what is in it.
func keysIn(secret *corev1.Secret) (Keys, error) {
	var errs []error
	read := func(name string) []byte {
		key, found := secret.Data[name]
		if !found {
			return nil
		}
		if len(key) != KeySize {
			errs = append(errs, fmt.Errorf("its %q has %d bytes instead of %d", name, len(key), KeySize))
		}
		return key
	}
	k := Keys{
		current: read(currentData), next: read(nextData), previous: read(previousData),
		currentSince: rotation.TimeIn(secret, currentSinceAnnotation), nextSince: rotation.TimeIn(secret, nextSinceAnnotation),
	}
	if k.current == nil {
		errs = append(errs, fmt.Errorf("it has no %q", currentData))
	}
	if err := errors.Join(errs...); err != nil {
		return Keys{}, fmt.Errorf("the Secret %s/%s has no usable keys (once it is deleted, new ones are made): %w", secret.Namespace, secret.Name, err)
	}
	return k, nil
}

// put writes the keys into the Secret, and leaves alone whatever else is there.
func (k Keys) put(secret *corev1.Secret) {
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	if secret.Labels == nil {
		secret.Labels = map[string]string{}
	}
	maps.Copy(secret.Labels, labels())
	for name, key := range map[string][]byte{currentData: k.current, nextData: k.next, previousData: k.previous} {
		if key == nil {
			delete(secret.Data, name)
			continue
		}
		secret.Data[name] = key
	}
	for annotation, t := range map[string]time.Time{currentSinceAnnotation: k.currentSince, nextSinceAnnotation: k.nextSince} {
		rotation.PutTime(secret, annotation, t)
	}
}
