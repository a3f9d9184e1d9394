// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/clientcmd"
)

// Sentence says in the plugin's own words what went wrong and what to do about it. What a command has wrapped around the error of
// a library stays before it. Several joined errors become several lines, each only once. ErrFound becomes nothing.
func Sentence(err error) string {
	lines, said := []string{}, sets.New[string]()
	for _, one := range joined(err) {
		if errors.Is(one, ErrFound) {
			continue // the command has said it
		}
		line := one.Error()
		if cause, words := ownWords(one); cause != "" {
			line = strings.Replace(line, cause, words, 1)
		}
		line = inOwnWords(line)
		if !said.Has(line) {
			said.Insert(line)
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

// joined returns the errors of errors.Join, or the error itself; of no error, none.
func joined(err error) []error {
	if err == nil {
		return nil
	}
	several, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var texts []string
	for _, one := range several.Unwrap() {
		texts = append(texts, one.Error())
	}
	if strings.Join(texts, "\n") != err.Error() {
		return []error{err} // fmt.Errorf with more than one error
	}
	var all []error
	for _, one := range several.Unwrap() {
		all = append(all, joined(one)...)
	}
	return all
}

// ownWords looks for an error of a library, and returns what that says and what the plugin says instead.
func ownWords(err error) (cause, words string) {
	for _, look := range []func(error) (string, string){ofKubeconfig, ofConnection, ofStatus, ofKind} {
		if cause, words = look(err); cause != "" {
			return cause, words
		}
	}
	return "", ""
}

func ofKubeconfig(err error) (cause, words string) {
	for ; err != nil; err = errors.Unwrap(err) {
		if clientcmd.IsEmptyConfig(err) {
			return err.Error(), "there is no kubeconfig: --kubeconfig or the variable KUBECONFIG names one"
		}
	}
	return "", ""
}

// ofConnection is about an API server that does not answer at all.
func ofConnection(err error) (cause, words string) {
	var at *url.Error
	if !errors.As(err, &at) || errors.Is(err, context.Canceled) {
		return "", ""
	}
	server := at.URL
	if parsed, err := url.Parse(at.URL); err == nil {
		server = parsed.Scheme + "://" + parsed.Host
	}
	why := at.Err.Error()
	var (
		operation *net.OpError
		name      *net.DNSError
		unknown   x509.UnknownAuthorityError
		invalid   x509.CertificateInvalidError
		host      x509.HostnameError
	)
	switch {
	case errors.As(at, &name):
		why = "its name " + name.Name + " is not known"
	case at.Timeout():
		why = "no answer in time"
	case errors.As(at, &unknown), errors.As(at, &invalid), errors.As(at, &host):
		why = strings.TrimPrefix(why, "tls: ")
		return at.Error(), fmt.Sprintf("%s shows a certificate that the kubeconfig does not trust: %s", server, why)
	case errors.As(at, &operation):
		why = operation.Err.Error()
		if _, last, ok := strings.Cut(why, ": "); ok {
			why = last
		}
	}
	return at.Error(), fmt.Sprintf("%s cannot be reached: %s", server, why)
}

// forbidden is how the API server's authorizer says that a right is missing.
var forbidden = regexp.MustCompile(
	`User "([^"]*)" cannot (\S+) (?:resource "([^"]*)" in API group "([^"]*)"|path "([^"]*)")` +
		`(?: (?:in the namespace "([^"]*)"|at the cluster scope))?`)

// ofStatus is about what an API server has answered.
func ofStatus(err error) (cause, words string) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return "", ""
	}
	cause = status.Status().Message
	switch status.Status().Reason {
	case metav1.StatusReasonUnauthorized:
		return cause, "the API server does not accept your credentials: log in again, or choose another user with --user or --context"
	case metav1.StatusReasonForbidden:
		return cause, missingRight(cause)
	case metav1.StatusReasonNotFound:
		if details := status.Status().Details; details != nil && details.Name != "" {
			kind := resourceName(details.Kind, details.Group)
			return cause, fmt.Sprintf("there is no %q among the %s%s", details.Name, kind, elsewhere(details.Kind))
		}
	}
	return "", ""
}

// elsewhere is where else to look for an object that is not there.
func elsewhere(resource string) string {
	switch resource {
	case "nodes", "namespaces":
		return ""
	}
	return " of that namespace: -n chooses another"
}

func resourceName(resource, group string) string {
	return (&schema.GroupResource{Group: group, Resource: resource}).String()
}

// missingRight names the right that a user does not have.
func missingRight(message string) string {
	found := forbidden.FindStringSubmatch(message)
	if found == nil {
		return message // an admission policy says no in its own words
	}
	user, verb, resource, group, path, namespace := found[1], found[2], found[3], found[4], found[5], found[6]
	on, where := path, ""
	if path == "" {
		on = resourceName(resource, group)
		where = " in all namespaces"
		if resource == "nodes" || resource == "namespaces" {
			where = ""
		}
	}
	if namespace != "" {
		where = fmt.Sprintf(" in namespace %q", namespace)
	}
	return fmt.Sprintf("user %q may not %s %s%s: this command needs that right", user, verb, on, where)
}

// ofKind is about kinds that the API server does not serve.
func ofKind(err error) (cause, words string) {
	var kind *meta.NoKindMatchError
	if errors.As(err, &kind) {
		return kind.Error(), fmt.Sprintf("the API server knows no kind %s; kubectl api-resources lists all that it knows", kind.GroupKind)
	}
	var resource *meta.NoResourceMatchError
	if errors.As(err, &resource) {
		name := resource.PartialResource.Resource
		return resource.Error(), fmt.Sprintf("the API server knows no kind %q; kubectl api-resources lists all that it knows", name)
	}
	return "", ""
}

// inOwnWords replaces what kubectl's packages say in words that fit only kubectl's own commands, and have no type for.
func inOwnWords(line string) string {
	for _, of := range []struct{ theirs, ours string }{
		{`the server doesn't have a resource type ("[^"]*")`, `the API server knows no kind $1; kubectl api-resources lists all that it knows`},
		{`there is no need to specify a resource type as a separate argument when passing arguments in resource/name form .*`,
			`write TYPE/NAME or TYPE NAME, not both`},
		{`arguments in resource/name form may not have more than one slash`, `write TYPE/NAME, with one slash; -n chooses the namespace`},
		{`arguments in resource/name form must have a single resource and name`, `write TYPE/NAME, such as machine/md-0-x7k2p`},
		{`resource\(s\) were provided, but no name was specified`, `say which object: TYPE/NAME, such as machine/md-0-x7k2p`},
		{`(?i)you must provide one or more resources by argument or filename[\s\S]*`, `say which object: TYPE/NAME, such as machine/md-0-x7k2p`},
		{`context ("[^"]*") does not exist$`, `context $1 does not exist: kubectl config get-contexts lists those of the kubeconfig`},
		{`^(accepts .*|requires at least .*) arg\(s\), (?:only )?received (\d+)$`, `$1 arguments, and got $2: --help says which`},
		// So cobra says that a command without commands of its own has an argument too many.
		{`^unknown command (.*) for ("kubectl heirloom .*")`, `$2 takes no arguments, and got $1`},
		{`^unknown command (.*) for (".*")`, `$2 has no command $1: --help lists those that it has`},
		{`^(unknown (?:shorthand )?flag: .*)`, `$1: --help lists the flags of this command, and "kubectl heirloom options" those of all`},
		{`^context canceled$`, `interrupted`},
	} {
		line = regexp.MustCompile(of.theirs).ReplaceAllString(line, of.ours)
	}
	return line
}
