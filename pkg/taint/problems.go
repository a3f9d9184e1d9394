// SPDX-License-Identifier: Apache-2.0

package taint

import (
	"errors"
	"fmt"
)

// MostProblems is how many problems of one list are reported. No one reads more, and a forged review could fill the memory with
// them.
const MostProblems = 100

// Problems collects what had to be left out.
type Problems struct {
	told []error
	more int
}

// Add notes a problem.
func (p *Problems) Add(problem error) {
	if len(p.told) == MostProblems {
		p.more++
		return
	}
	p.told = append(p.told, problem)
}

// Err returns the first problems and how many more there are; nil where there are none.
func (p *Problems) Err() error {
	if p.more == 0 {
		return errors.Join(p.told...)
	}
	return errors.Join(errors.Join(p.told...), fmt.Errorf("and %d more", p.more))
}
