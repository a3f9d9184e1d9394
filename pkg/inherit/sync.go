// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// Annotations that name further labels and annotations of Machines for their Nodes, in addition to rules 11 and 12 and the operator's
// regexes: on a Cluster for all its Nodes, and on a Machine, which inherits them from its topology or its template. Their values are lists
// of keys, separated by commas; a key that ends with * is a prefix.
const (
	SyncLabelsAnnotation      = "sync.heirloom.dev/labels"
	SyncAnnotationsAnnotation = "sync.heirloom.dev/annotations"
)

// SyncAnyKey in Policy.SyncAllowed stands for all keys outside kubernetes.io, k8s.io and their subdomains.
const SyncAnyKey = "*"

// mostNamed limits the keys of a list that count: each key is compared with every key of a Machine.
const mostNamed = 100

//nolint:gochecknoglobals // tables that nothing changes
var (
	syncedBy = map[string]string{labelKey: SyncLabelsAnnotation, annotationKey: SyncAnnotationsAnnotation}
	// namedKey matches a key or a prefix in the list. The match condition of the validating webhooks has the same expression.
	namedKey = regexp.MustCompile(`^([A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?|([A-Za-z0-9][-A-Za-z0-9_./]*)?\*)$`)
)

// Of returns the policy for the objects of this Cluster, with the keys that its annotations name. cluster may be nil.
func (p Policy) Of(cluster *clusterv1.Cluster) Policy {
	if cluster != nil {
		p.ofCluster = cluster.Annotations
	}
	return p
}

// naming returns the policy for a Node, with its facts, and with the keys that the annotations of its Cluster and of its Machine name.
func (p Policy) naming(from NodeSource) Policy {
	ofCluster := from.ofCluster
	if ofCluster == nil {
		ofCluster = p.ofCluster
	}
	p.named, p.facts = nil, from.Facts
	for what, name := range syncedBy {
		keys, _ := ParseNamedKeys(ofCluster[name])
		ofMachine, _ := ParseNamedKeys(from.Annotations[name])
		if keys = append(keys, ofMachine...); len(keys) > 0 {
			p.named = mergeMaps(p.named, map[string][]string{what: keys})
		}
	}
	return p
}

// Naming returns the policy with regexes for the keys that the annotations of these Machines and of their Cluster name, as if the operator
// had set the regexes. At most mostNamed labels and mostNamed annotations count.
func (p Policy) Naming(machines []Machine) Policy {
	all := map[string]sets.Set[string]{labelKey: sets.New[string](), annotationKey: sets.New[string]()}
	for _, m := range machines {
		for what, keys := range p.naming(NodeSource{Annotations: m.Effective.Annotations}).named {
			all[what].Insert(keys...)
		}
	}
	regexes := func(what string) (regexes []*regexp.Regexp) {
		keys := slices.DeleteFunc(sets.List(all[what]), func(key string) bool { return !p.mayName(key) })
		for _, key := range keys[:min(len(keys), mostNamed)] {
			prefix, isPrefix := strings.CutSuffix(key, "*")
			end := map[bool]string{false: "$"}[isPrefix]
			regexes = append(regexes, regexp.MustCompile("^"+regexp.QuoteMeta(prefix)+end))
		}
		return regexes
	}
	p.AdditionalLabels = slices.Concat(p.AdditionalLabels, regexes(labelKey))
	p.AdditionalAnnotations = slices.Concat(p.AdditionalAnnotations, regexes(annotationKey))
	return p
}

// names reports whether an annotation of the Cluster or the Machine names a label or an annotation, and the operator allows the key.
func (p Policy) names(what, key string) bool {
	return covered(p.named[what], key) && covered(p.SyncAllowed, key)
}

// mayBeNamed reports whether some Cluster or Machine may name this key.
func (p Policy) mayBeNamed(key string) bool {
	return OfItself(key) == "" && covered(p.SyncAllowed, key)
}

// NamedBy returns the annotation by which a Cluster may name a label or an annotation for its Nodes, or "" if the operator does not allow
// the key.
func (p Policy) NamedBy(e Entry) string {
	if !p.mayBeNamed(e.Name) {
		return ""
	}
	return syncedBy[e.What]
}

// mayName reports whether the operator allows the key, or any key with the prefix.
func (p Policy) mayName(named string) bool {
	prefix, isPrefix := strings.CutSuffix(named, "*")
	return covered(p.SyncAllowed, prefix) || isPrefix && slices.ContainsFunc(p.SyncAllowed, func(allowed string) bool {
		return allowed != SyncAnyKey && strings.HasPrefix(allowed, prefix)
	})
}

// covered reports whether a list of keys and prefixes contains this key.
func covered(list []string, key string) bool {
	return slices.ContainsFunc(list, func(named string) bool {
		prefix, isPrefix := strings.CutSuffix(named, "*")
		if named == SyncAnyKey {
			return !restricted(key)
		}
		return key == named || isPrefix && strings.HasPrefix(key, prefix)
	})
}

// ParseNamedKeys parses a list of keys and prefixes. broken describes the invalid entries; the others count.
func ParseNamedKeys(list string) (keys, broken []string) {
	for entry := range strings.SplitSeq(list, ",") {
		switch entry = strings.TrimSpace(entry); {
		case entry == "":
		case len(keys) == mostNamed:
			return keys, append(broken, fmt.Sprintf("only the first %d keys count", mostNamed))
		case namedKey.MatchString(entry):
			keys = append(keys, entry)
		case len(broken) < mostNamed:
			broken = append(broken, fmt.Sprintf("%q is neither a key nor a prefix that ends with *", shorten(entry)))
		}
	}
	return keys, broken
}

// NamingProblems returns the problems of the annotations of a Cluster, or of a Machine or its template: entries that have no effect.
func (p Policy) NamingProblems(annotations map[string]string) (problems []string) {
	for _, name := range []string{SyncLabelsAnnotation, SyncAnnotationsAnnotation} {
		keys, broken := ParseNamedKeys(annotations[name])
		for _, key := range keys {
			if !p.mayName(key) {
				broken = append(broken, fmt.Sprintf("%q is not allowed (--per-cluster-sync-allowed)", shorten(key)))
			}
		}
		for _, problem := range broken {
			problems = append(problems, fmt.Sprintf("annotation %s: %s", name, problem))
		}
	}
	return problems
}
