// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"path"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// Prefix begins the path that the API server of a workload cluster calls.
	Prefix = "/workload/"
	// KeySize is the length of a key in bytes.
	KeySize = 32

	// domain separates these HMACs from any other use of the same key.
	domain = "heirloom.dev/workload-webhook/v2"

	// longest is the maximum length of a genuine path.
	longest = len(Prefix) + validation.DNS1123LabelMaxLength + 1 + validation.DNS1123SubdomainMaxLength + 1 + 2*sha256.Size
)

// Identity identifies one Cluster: a later Cluster of the same name has another UID.
type Identity struct {
	types.NamespacedName
	UID types.UID
}

// IdentityOf returns the identity of a Cluster.
func IdentityOf(cluster metav1.Object) Identity {
	return Identity{NamespacedName: types.NamespacedName{Namespace: cluster.GetNamespace(), Name: cluster.GetName()}, UID: cluster.GetUID()}
}

// Path returns the path that the API server of the Cluster calls: /workload/<namespace>/<name>/<HMAC in hex>. It is valid only for the
// Nodes of this Cluster, and as long as the Cluster exists.
func Path(key []byte, cluster Identity) string {
	return directory(cluster.NamespacedName) + hex.EncodeToString(authenticate(key, cluster))
}

// Verify returns the Cluster that a path names if the path was made with the key. The path must be as it is in the request, still escaped:
// a genuine path has nothing to escape. uid returns the UID of the Cluster with a name, or "" if there is no such Cluster. The HMAC is
// computed even then, so that the duration reveals nothing about the key.
func Verify(key []byte, path string, uid func(types.NamespacedName) types.UID) (types.NamespacedName, bool) {
	name, claimed, ok := parse(path)
	if !ok {
		return types.NamespacedName{}, false
	}
	cluster := Identity{NamespacedName: name, UID: uid(name)}
	// Anyone can compute the HMAC of an empty key, and a Cluster without a UID does not exist.
	if !hmac.Equal(authenticate(key, cluster), claimed) || len(key) != KeySize || cluster.UID == "" {
		return types.NamespacedName{}, false
	}
	return name, true
}

// directory returns the part of the path that is not secret.
func directory(cluster types.NamespacedName) string {
	return Prefix + cluster.Namespace + "/" + cluster.Name + "/"
}

// parse splits a path. Each pair of a Cluster and an HMAC has exactly one path that is accepted.
func parse(path string) (cluster types.NamespacedName, mac []byte, ok bool) {
	rest, ok := strings.CutPrefix(path, Prefix)
	if !ok || len(path) > longest {
		return types.NamespacedName{}, nil, false
	}
	parts := strings.Split(rest, "/")
	if len(parts) != 3 || len(validation.IsDNS1123Label(parts[0])) > 0 || len(validation.IsDNS1123Subdomain(parts[1])) > 0 {
		return types.NamespacedName{}, nil, false
	}
	mac, err := hex.DecodeString(parts[2])
	if err != nil || strings.ToLower(parts[2]) != parts[2] {
		return types.NamespacedName{}, nil, false
	}
	return types.NamespacedName{Namespace: parts[0], Name: parts[1]}, mac, true
}

// authenticate returns the HMAC over the Cluster's namespace, name and UID. Their lengths are hashed as well, so that no two Clusters have
// the same HMAC.
func authenticate(key []byte, cluster Identity) []byte {
	mac := hmac.New(sha256.New, key)
	for _, part := range []string{domain, cluster.Namespace, cluster.Name, string(cluster.UID)} {
		mac.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		mac.Write([]byte(part))
	}
	return mac.Sum(nil)
}

// BaseURL checks the URL under which workload clusters reach Heirloom, and returns it without a slash at its end. It refuses a URL that an
// API server would refuse in a webhook, because an operator sees the error here.
func BaseURL(raw string) (string, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return "", fmt.Errorf("must be a URL: %w", err)
	}
	switch {
	case u.Scheme != "https" || u.Hostname() == "":
		return "", errors.New("must be https://<host>[:<port>][/<path>]")
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.HasSuffix(raw, "#"):
		return "", errors.New("must have no user, no query and no fragment")
	}
	base := strings.TrimSuffix(u.EscapedPath(), "/")
	if base != "" && path.Clean(base) != base || strings.HasSuffix(base, "/") || strings.Contains(base, "%") {
		return "", errors.New("must have a plain path: without empty, . or .. segments and without %")
	}
	return "https://" + u.Host + base, nil
}
