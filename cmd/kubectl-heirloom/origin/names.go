// SPDX-License-Identifier: Apache-2.0

package origin

// Names implements cli.Named.
func (e *Explanation) Names() []string { return []string{e.name} }

// Names implements cli.Named. With -o name, "explain" lists what it would explain, such as for xargs.
func (l *List) Names() []string {
	names := make([]string, 0, len(l.Items))
	for _, e := range l.Items {
		names = append(names, e.name)
	}
	return names
}
