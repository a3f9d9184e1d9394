// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// The worlds of the table.
const withoutHeirloom, withHeirloom = "alone", "with Heirloom"

// table has the results of each change, by the name of the change and of the world.
type table map[string]map[string]measured

func (t table) add(change, world string, m measured) {
	if t[change] == nil {
		t[change] = map[string]measured{}
	}
	t[change][world] = m
}

// print prints a line for each change: seconds to the last Node, seconds of CPU until the fleet was settled again, and multiples of Cluster
// API alone; then the memory of each group of programs.
func (t table) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	lines := []string{"\nseconds to the last Node\talone\twith\t×\tserver CPU alone\twith\t×\tCluster API CPU alone\twith\t×\tHeirloom CPU\t"}
	memory := map[string]map[string]float64{}
	for _, c := range changes() {
		row := t[c.name]
		if row == nil {
			continue
		}
		alone, hasAlone := row[withoutHeirloom]
		with, hasWith := row[withHeirloom]
		pair := func(alone, with float64) string {
			ratio := "–"
			if hasAlone && hasWith && alone > 0 {
				ratio = fmt.Sprintf("%.2f", with/alone)
			}
			return fmt.Sprintf("%s\t%s\t%s\t", number(alone, hasAlone), number(with, hasWith), ratio)
		}
		lines = append(lines, c.name+"\t"+pair(alone.took.Seconds(), with.took.Seconds())+pair(alone.cpu[server], with.cpu[server])+
			pair(alone.cpu[clusterAPI], with.cpu[clusterAPI])+number(with.cpu[heirloom], hasWith)+"\t")
		for name, m := range row {
			memory[name] = m.memory
		}
	}
	if _, err := fmt.Fprintln(w, strings.Join(lines, "\n")); err != nil {
		return fmt.Errorf("printing the table: %w", err)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("printing the table: %w", err)
	}
	for _, name := range []string{withoutHeirloom, withHeirloom} {
		if at := memory[name]; at != nil {
			fmt.Printf("memory %s, at the end: API server and etcd %.0f MiB, Cluster API %.0f MiB, Heirloom %.0f MiB\n",
				name, at[server], at[clusterAPI], at[heirloom])
		}
	}
	return nil
}

func number(value float64, known bool) string {
	if !known {
		return "–"
	}
	return fmt.Sprintf("%.1f", value)
}
