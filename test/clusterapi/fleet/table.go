// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"text/tabwriter"
)

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
func (t table) print(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\nseconds to the last Node\talone\twith\t×\tserver CPU alone\twith\t×\tCluster API CPU alone\twith\t×\tHeirloom CPU\t")
	memory := map[string]map[string]float64{}
	for _, c := range changes() {
		row := t[c.name]
		if row == nil {
			continue
		}
		alone, hasAlone := row["alone"]
		with, hasWith := row["with Heirloom"]
		fmt.Fprintf(w, "%s\t", c.name)
		printPair(w, alone.took.Seconds(), with.took.Seconds(), hasAlone, hasWith)
		printPair(w, alone.cpu[server], with.cpu[server], hasAlone, hasWith)
		printPair(w, alone.cpu[clusterAPI], with.cpu[clusterAPI], hasAlone, hasWith)
		fmt.Fprintf(w, "%s\t\n", number(with.cpu[heirloom], hasWith))
		for name, m := range row {
			memory[name] = m.memory
		}
	}
	_ = w.Flush() // stdout
	fmt.Fprintln(out)
	for _, name := range []string{"alone", "with Heirloom"} {
		if at := memory[name]; at != nil {
			fmt.Fprintf(out, "memory %s, at the end: API server and etcd %.0f MiB, Cluster API %.0f MiB, Heirloom %.0f MiB\n",
				name, at[server], at[clusterAPI], at[heirloom])
		}
	}
}

func printPair(w io.Writer, alone, with float64, hasAlone, hasWith bool) {
	ratio := "–"
	if hasAlone && hasWith && alone > 0 {
		ratio = fmt.Sprintf("%.2f", with/alone)
	}
	fmt.Fprintf(w, "%s\t%s\t%s\t", number(alone, hasAlone), number(with, hasWith), ratio)
}

func number(value float64, known bool) string {
	return cmp.Or(map[bool]string{true: fmt.Sprintf("%.1f", value)}[known], "–")
}
