// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

const crdsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// crd is a CustomResourceDefinition in the form that goes to an API server.
type crd struct {
	name, plural string
	versions     []string // the served versions, each with its group
	several      bool     // whether it has more than one version, served or not
	raw          []byte
}

// crdFiles caches the CRDs of files and directories by path: many control planes have the same CRDs.
type crdFiles struct {
	mu   sync.Mutex
	read map[string][]crd
}

var knownCRDs crdFiles

// InstallCRDs creates the CustomResourceDefinitions in files and directories, unless they exist, and waits until the API server serves
// all of them.
func (cp *ControlPlane) InstallCRDs(ctx context.Context, paths ...string) error {
	var crds []crd
	for _, path := range paths {
		of, err := knownCRDs.in(path)
		if err != nil {
			return err
		}
		crds = append(crds, of...)
	}
	clientset, err := kubernetes.NewForConfig(cp.admin)
	if err != nil {
		return fmt.Errorf("making a client that installs CRDs: %w", err)
	}
	c := clientset.Discovery().RESTClient()
	creating, ctxCreating := errgroup.WithContext(ctx)
	creating.SetLimit(8)
	for _, crd := range crds {
		creating.Go(func() error { return crd.create(ctxCreating, c) })
	}
	if err := creating.Wait(); err != nil {
		return err
	}
	return waitServed(ctx, c, crds)
}

// CRDsToConvert returns the names of the CustomResourceDefinitions in a file or directory that have more than one version.
func CRDsToConvert(path string) ([]string, error) {
	crds, err := knownCRDs.in(path)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, crd := range crds {
		if crd.several {
			names = append(names, crd.name)
		}
	}
	return names, nil
}

func (d crd) create(ctx context.Context, c rest.Interface) error {
	err := c.Post().AbsPath(crdsPath).SetHeader("Content-Type", "application/json").Body(d.raw).Do(ctx).Error()
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating CRD %s: %w", d.name, err)
	}
	return nil
}

// waitServed waits until discovery lists all of the CRDs.
func waitServed(ctx context.Context, c rest.Interface, crds []crd) error {
	missing := map[string][]string{}
	for _, crd := range crds {
		for _, version := range crd.versions {
			missing[version] = append(missing[version], crd.plural)
		}
	}
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		for version, plurals := range missing {
			raw, err := c.Get().AbsPath("/apis/" + version).Do(ctx).Raw()
			if err != nil {
				return false, nil //nolint:nilerr // the group may not be there yet
			}
			served := &metav1.APIResourceList{}
			if err := json.Unmarshal(raw, served); err != nil {
				return false, err
			}
			plurals = slices.DeleteFunc(plurals, func(plural string) bool {
				return slices.ContainsFunc(served.APIResources, func(r metav1.APIResource) bool { return r.Name == plural })
			})
			if missing[version] = plurals; len(plurals) > 0 {
				return false, nil
			}
			delete(missing, version)
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("waiting until CRDs are served, %v: %w", missing, err)
	}
	return nil
}

// in returns the CRDs in a file or in the files of a directory.
func (f *crdFiles) in(path string) ([]crd, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if crds, ok := f.read[path]; ok {
		return crds, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("looking for CRDs: %w", err)
	}
	files := []string{path}
	if info.IsDir() {
		if files, err = filepath.Glob(filepath.Join(path, "*.yaml")); err != nil {
			return nil, fmt.Errorf("looking for CRDs: %w", err)
		}
	}
	var crds []crd
	for _, file := range files {
		of, err := readCRDs(file)
		if err != nil {
			return nil, fmt.Errorf("reading CRDs in %s: %w", file, err)
		}
		crds = append(crds, of...)
	}
	if f.read == nil {
		f.read = map[string][]crd{}
	}
	f.read[path] = crds
	return crds, nil
}

func readCRDs(file string) ([]crd, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var crds []crd
	for documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content))); ; {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return crds, nil
		}
		if err != nil {
			return nil, err
		}
		var object map[string]any
		if err := yaml.Unmarshal(document, &object); err != nil {
			return nil, err
		}
		if object["kind"] != "CustomResourceDefinition" {
			continue
		}
		read, err := newCRD(object)
		if err != nil {
			return nil, err
		}
		crds = append(crds, read)
	}
}

// newCRD removes the descriptions: the API server would spend time on them for each version of each CRD.
func newCRD(object map[string]any) (crd, error) {
	var known struct {
		Metadata struct{ Name string }
		Spec     struct {
			Group    string
			Names    struct{ Plural string }
			Versions []struct {
				Name   string
				Served bool
			}
		}
	}
	withoutDescriptions(object)
	raw, err := json.Marshal(object)
	if err == nil {
		err = json.Unmarshal(raw, &known)
	}
	d := crd{name: known.Metadata.Name, plural: known.Spec.Names.Plural, several: len(known.Spec.Versions) > 1, raw: raw}
	for _, version := range known.Spec.Versions {
		if version.Served {
			d.versions = append(d.versions, known.Spec.Group+"/"+version.Name)
		}
	}
	return d, err
}

// withoutDescriptions removes the descriptions of fields. It keeps a field with the name description: its value is a schema, not a string.
func withoutDescriptions(value any) {
	switch value := value.(type) {
	case map[string]any:
		if _, ok := value["description"].(string); ok {
			delete(value, "description")
		}
		for _, below := range value {
			withoutDescriptions(below)
		}
	case []any:
		for _, below := range value {
			withoutDescriptions(below)
		}
	}
}
