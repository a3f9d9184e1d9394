// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"encoding/json"
	"fmt"
)

// shownObject is an object to show, and how many others there are like it.
type shownObject struct {
	*Object
	others int
}

// grouped returns the objects to show. Of those in one set that change alike, that is the first.
func grouped(objects []*Object, all bool) ([]shownObject, error) {
	var result []shownObject
	at := map[string]int{}
	for _, o := range objects {
		if all || o.Applied || o.Set == "" {
			result = append(result, shownObject{Object: o})
			continue
		}
		key, err := likeness(o)
		if err != nil {
			return nil, err
		}
		if i, known := at[key]; known {
			result[i].others++
			continue
		}
		at[key] = len(result)
		result = append(result, shownObject{Object: o})
	}
	return result, nil
}

// likeness is the same for objects of a set whose changes are the same, there and back.
func likeness(o *Object) (string, error) {
	there, err := difference(o.Live, o.Merged)
	if err != nil {
		return "", err
	}
	back, err := difference(o.Merged, o.Live)
	if err != nil {
		return "", err
	}
	text, err := json.Marshal([]any{o.Cluster, o.Set, o.APIVersion, o.Kind, there, back})
	if err != nil {
		return "", fmt.Errorf("comparing %s: %w", nameOf(o.Live), err)
	}
	return string(text), nil
}
