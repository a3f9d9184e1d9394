// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// Annotations on a Cluster, or on a ClusterClass for all its Clusters, that name further labels and annotations of Machines for their Nodes, in
// addition to rules 11 and 12 and the operator's regexes. Their values are lists of keys, separated by commas; a key that ends with * is a
// prefix.
const (
	SyncLabelsAnnotation      = "sync.heirloom.dev/labels"
	SyncAnnotationsAnnotation = "sync.heirloom.dev/annotations"
)

// SyncAnyKey in Policy.SyncAllowed stands for all keys outside kubernetes.io, k8s.io and their subdomains.
const SyncAnyKey = "*"

// Limits on a list, which is parsed for each Node: its bytes, the keys that count, and the bytes of a key (a DNS subdomain, a slash and a
// name).
const longestNaming, mostNamed, longestKey = 4 << 10, 100, 253 + 1 + 63

//nolint:gochecknoglobals // tables that nothing changes
var (
	syncedBy = map[string]string{labelKey: SyncLabelsAnnotation, annotationKey: SyncAnnotationsAnnotation}
	namedKey = regexp.MustCompile(`^([A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?|([A-Za-z0-9][-A-Za-z0-9_./]*)?\*)$`)
)

// Of returns the policy for the Nodes of this Cluster, with the keys that its annotations and the annotations of its class name. Both may be
// nil.
func (p Policy) Of(cluster *clusterv1.Cluster, class *clusterv1.ClusterClass) Policy {
	p.named = map[string][]string{}
	for what, name := range syncedBy {
		if cluster != nil {
			p.named[what], _ = ParseNamedKeys(cluster.Annotations[name])
		}
		if class != nil {
			ofClass, _ := ParseNamedKeys(class.Annotations[name])
			p.named[what] = append(p.named[what], ofClass...)
		}
	}
	return p
}

// naming returns the policy for a Node, with its facts, and with the keys that its Cluster names.
func (p Policy) naming(from NodeSource) Policy {
	if p.facts = from.Facts; from.named != nil {
		p.named = from.named
	}
	return p
}

// Named returns the keys and prefixes that the Cluster names. SyncAllowed limits them.
func (p Policy) Named() (labels, annotations []string) {
	return p.named[labelKey], p.named[annotationKey]
}

// names reports whether the Cluster names a label or an annotation, and the operator allows the key.
func (p Policy) names(what, key string) bool {
	return covered(p.named[what], key) && covered(p.SyncAllowed, key)
}

// mayBeNamed reports whether some Cluster may name this key.
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

// ParseNamedKeys parses a list of keys and prefixes. broken describes the invalid entries; the others count. Of a list that is too long, no
// entry counts.
func ParseNamedKeys(list string) (keys, broken []string) {
	if len(list) > longestNaming {
		return nil, []string{fmt.Sprintf("its %d bytes are more than %d, so no entry counts", len(list), longestNaming)}
	}
	for entry := range strings.SplitSeq(list, ",") {
		switch entry = strings.TrimSpace(entry); {
		case entry == "":
		case len(keys) == mostNamed:
			return keys, append(broken, fmt.Sprintf("only the first %d keys count", mostNamed))
		case len(entry) <= longestKey && namedKey.MatchString(entry):
			keys = append(keys, entry)
		case len(broken) < mostNamed:
			broken = append(broken, fmt.Sprintf("%q is neither a key nor a prefix that ends with *", shorten(entry)))
		}
	}
	return keys, broken
}

// Names reports whether the annotations of objects of this kind name keys.
func Names(kind string) bool { return kind == "Cluster" || kind == "ClusterClass" }

// NamingProblems returns the problems of the annotations of a Cluster or a ClusterClass: entries that have no effect.
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
