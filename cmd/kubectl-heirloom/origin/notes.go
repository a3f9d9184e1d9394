// SPDX-License-Identifier: Apache-2.0

package origin

import (
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/ownerchain"
)

// notes returns what a reader of the entries should know about the whole object.
func (c chain) notes() []string {
	var notes []string
	for _, note := range []string{c.unfollowed(), c.leftAlone(), c.leftOut(), c.declarer()} {
		if note != "" {
			notes = append(notes, note)
		}
	}
	return notes
}

// unfollowed names an owner at which the way up ends early.
func (c chain) unfollowed() string {
	switch {
	case c.Machine != nil && c.MachineSet == nil:
		return endsAt(ownerchain.Name("Machine", c.Machine), c.Machine)
	case c.MachineSet != nil && c.MachineDeployment == nil:
		return endsAt(ownerchain.Name("MachineSet", c.MachineSet), c.MachineSet)
	}
	return ""
}

func endsAt(name string, object metav1.Object) string {
	ref := metav1.GetControllerOfNoCopy(object)
	if ref == nil {
		return ""
	}
	why := "which this command cannot look into yet"
	if ref.Kind == "MachineSet" || ref.Kind == "MachineDeployment" {
		why = "which does not exist any more or belongs to another Cluster"
	}
	return fmt.Sprintf("%s is controlled by %s %s, %s: what came from there is shown as set on %s.", name, ref.Kind, ref.Name, why, name)
}

// leftAlone says why Heirloom does not touch the object now.
func (c chain) leftAlone() string {
	why, skipped := c.skipped()
	if !skipped {
		return ""
	}
	return "Heirloom leaves the object alone for now, because " + why + "."
}

func (c chain) skipped() (why string, skipped bool) {
	var reason inherit.Reason
	switch {
	case c.Node != nil && inherit.Deleting(c.Node):
		return string(inherit.IsDeleted), true
	case c.Node != nil:
		reason, skipped = c.rules.SkipsNode(c.Machine, c.Cluster)
		return "of " + ownerchain.Name("Machine", c.Machine) + ": " + string(reason), skipped
	case c.Machine != nil:
		reason, skipped = c.rules.Skips(c.Machine, c.Cluster)
	default:
		reason, skipped = c.rules.Skips(c.MachineSet, c.Cluster)
	}
	return string(reason), skipped
}

// leftOut lists what is declared and may not be inherited.
func (c chain) leftOut() string {
	if c.Machine == nil {
		return ""
	}
	inherited, err := c.rules.MachineFrom(inherit.TemplateOfMachineSet(c.MachineSet), c.Machine)
	has := inherit.OfMachine(c.Machine)
	_, refused := inherit.Admissible(has, inherited, func() inherit.Object { return has }, nil)
	err = errors.Join(err, refused)
	if c.Node != nil {
		_, err = c.rules.Node(inherit.SourceOfMachine(c.Machine), inherit.NodeState{}, inherit.Privileged)
	}
	if err == nil {
		return ""
	}
	return "Left out: " + strings.ReplaceAll(err.Error(), "\n", "; ") + "."
}

// declarer names the object to edit.
func (c chain) declarer() string {
	edit := ""
	switch {
	case c.Machine != nil && c.MachineSet == nil && metav1.GetControllerOfNoCopy(c.Machine) != nil:
		return "" // a control plane, for example; unfollowed names it
	case c.Machine != nil && (c.Node != nil || c.MachineSet != nil):
		edit = ownerchain.DeclarerOf(c.Machine, c.MachineSet)
	case c.MachineSet != nil && c.MachineDeployment != nil:
		edit = ownerchain.DeclarerOfMachineSet(c.MachineSet)
	default:
		return ""
	}
	return "To change what is inherited, edit " + edit + "."
}
