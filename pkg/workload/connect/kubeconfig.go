// SPDX-License-Identifier: Apache-2.0

package connect

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/cluster-api/util/kubeconfig"
	secretutil "sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// longest is the maximum size of a kubeconfig in bytes. Kubeconfigs of Cluster API have about 6 KiB.
	longest = 64 << 10
	// mostProblems is the maximum number of problems in a message. Each has at most some hundred bytes; the note of an Event has at most
	// 1024.
	mostProblems = 5
)

// checkKubeconfig refuses a kubeconfig that takes anything from the machine on which Heirloom runs. Tenants may write kubeconfigs, and
// choose the server that gets the credentials: with a path, they could send Heirloom's own token there, and a plugin would run their
// program. Contexts other than the current context are also checked, because none is needed. It also refuses anchors and aliases of YAML:
// their expansion could take any amount of memory.
func checkKubeconfig(raw []byte) error {
	if len(raw) > longest {
		return fmt.Errorf("it has more than %d KiB", longest>>10)
	}
	document := &yaml.Node{}
	if err := yaml.Unmarshal(raw, document); err != nil {
		return fmt.Errorf("it cannot be read: %w", err)
	}
	if aliased(document) {
		return errors.New("it has an anchor or an alias, which are not supported")
	}
	config, err := clientcmd.Load(raw)
	if err != nil {
		return fmt.Errorf("it cannot be read: %w", err)
	}
	var problems []string
	refuse := func(kind, name, field, instead string, used bool) {
		if used && len(problems) < mostProblems {
			problems = append(problems, fmt.Sprintf("%s %.50q has %s, which is not supported (use %s)", kind, name, field, instead))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(config.Clusters)) {
		refuse("cluster", name, "a server that is neither a DNS name nor an IP address", "https://<host>:<port>", !reachable(config.Clusters[name].Server))
		refuse("cluster", name, "certificate-authority", "certificate-authority-data", config.Clusters[name].CertificateAuthority != "")
	}
	for _, name := range slices.Sorted(maps.Keys(config.AuthInfos)) {
		user := config.AuthInfos[name]
		refuse("user", name, "client-certificate", "client-certificate-data", user.ClientCertificate != "")
		refuse("user", name, "client-key", "client-key-data", user.ClientKey != "")
		refuse("user", name, "tokenFile", "token", user.TokenFile != "")
		refuse("user", name, "exec", "credentials", user.Exec != nil)
		refuse("user", name, "auth-provider", "credentials", user.AuthProvider != nil)
	}
	if len(problems) == 0 {
		return nil
	}
	return errors.New(strings.Join(problems, "; "))
}

// reachable reports whether a server's host is a DNS name or an IP address. Metrics and messages show the host unchanged.
func reachable(server string) bool {
	u, _, err := rest.DefaultServerURL(server, "", schema.GroupVersion{}, true)
	if err != nil || len(u.Port()) > len("65535") {
		return false
	}
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	return net.ParseIP(host) != nil || len(validation.IsDNS1123Subdomain(host)) == 0
}

// aliased reports whether a document has an anchor or an alias.
func aliased(node *yaml.Node) bool {
	return node.Anchor != "" || node.Kind == yaml.AliasNode || slices.ContainsFunc(node.Content, aliased)
}

// kubeconfigs reads Secrets for the ClusterCache. It returns an error for a kubeconfig that checkKubeconfig refuses.
type kubeconfigs struct {
	client.Reader
	// refused, unless nil, is called with the Cluster of a refused kubeconfig, and the reason.
	refused func(context.Context, types.NamespacedName, error)
}

// Get implements client.Reader.
func (k kubeconfigs) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if err := k.Reader.Get(ctx, key, object, options...); err != nil {
		return err
	}
	cluster, isKubeconfig := strings.CutSuffix(key.Name, "-"+string(secretutil.Kubeconfig))
	stored, isSecret := object.(*corev1.Secret)
	if !isKubeconfig || !isSecret {
		return nil
	}
	err := checkKubeconfig(stored.Data[secretutil.KubeconfigDataName])
	if err == nil {
		return nil
	}
	if k.refused != nil {
		k.refused(ctx, types.NamespacedName{Namespace: key.Namespace, Name: cluster}, err)
	}
	return fmt.Errorf("it is refused: %w", err)
}

// RESTConfig returns the client configuration for a workload cluster without a ClusterCache, from the same kubeconfig and with the same
// checks.
func RESTConfig(ctx context.Context, management client.Reader, cluster types.NamespacedName) (*rest.Config, error) {
	var config *rest.Config
	raw, err := kubeconfig.FromSecret(ctx, kubeconfigs{Reader: management}, cluster)
	if err == nil {
		config, err = clientcmd.RESTConfigFromKubeConfig(raw)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig in the Secret %s-kubeconfig: %w", cluster, err)
	}
	config.Timeout = requestTimeout
	return config, nil
}
