// SPDX-License-Identifier: Apache-2.0

package origin

import (
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/rules"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// leftAlone says why Heirloom does not touch the object now.
func leftAlone(why inherit.Reason) string {
	return "Heirloom leaves the object alone for now, because " + string(why) + "."
}

// unfollowed names an owner at which the way up ends early.
func unfollowed(object inherit.Ref, outcome inherit.Outcome, err error, sources inherit.Sources) []string {
	if err != nil {
		return []string{fmt.Sprintf("What %s inherits is not known, because not all of its owners can be read: %s. "+
			"What came from there is shown as set on %s.", object, cli.OneLine(err), object)}
	}
	if ref := metav1.GetControllerOfNoCopy(object.Object); ref != nil && outcome == inherit.OwnerNotFound {
		return []string{fmt.Sprintf("%s is controlled by %s %s, which does not exist any more, belongs to another Cluster or is no owner of such an object: "+
			"what came from there is shown as set on %s.", object, ref.Kind, ref.Name, object)}
	}
	return unread(sources)
}

// unread says which owners further up could not be read.
func unread(sources inherit.Sources) []string {
	var notes []string
	if sources.Err != nil {
		notes = append(notes, "Not all owners can be read, so what they declare is shown as far as it is known: "+cli.OneLine(sources.Err)+".")
	}
	for _, d := range sources.All {
		if d.Unread && sources.Err == nil {
			notes = append(notes, fmt.Sprintf("What %s declares is not known: it does not exist any more, or does not name the objects below it.", d.Ref))
		}
	}
	return notes
}

// leftOut lists what is declared and may not be inherited, and where.
func leftOut(sources inherit.Sources, problems ...error) []string {
	if located := sources.Located(errors.Join(problems...)); located != nil {
		return []string{"Left out: " + cli.OneLine(located) + "."}
	}
	return nil
}

// whereToEdit names the object to edit, unless it is the one that is explained.
func whereToEdit(object inherit.Ref, sources inherit.Sources) []string {
	top := topOf(sources)
	if top.Object == nil || top.Ref == object {
		return nil
	}
	return []string{"To change what is inherited, edit " + top.String() + "."}
}

// ownersIn names the objects that may declare something for an object.
func ownersIn(sources inherit.Sources, object inherit.Ref) []string {
	var names []string
	for _, d := range sources.All {
		if !rules.Same(d.Ref, object) {
			names = append(names, d.String())
		}
	}
	return names
}

// topOf is where you change what an object and those like it inherit: the uppermost object of the chain, with all that it declares.
// The source is empty if there are no objects.
func topOf(sources inherit.Sources) inherit.Source {
	if len(sources.All) == 0 {
		return inherit.Source{}
	}
	top, field := sources.All[0], sources.All[0].Whole
	if metadata := top.Paths.Metadata; field == "" && len(metadata) > 0 {
		field = strings.Join(metadata[:len(metadata)-1], ".")
	}
	return inherit.Source{Ref: top.Ref, Field: field}
}
