// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/semver"
	"sigs.k8s.io/yaml"
)

// check returns the reasons why the sources cannot be tagged with a version.
func (r *release) check() error {
	if semver.Canonical(r.version) != r.version {
		return fmt.Errorf("%s is not a version such as v1.2.3", r.version)
	}
	changelog, err := os.ReadFile(filepath.Join(r.source, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	return errors.Join(r.checkChart(), r.checkSeries(), checkChangelog(string(changelog), r.version))
}

func (r *release) checkChart() error {
	var chart struct{ Version, AppVersion string }
	if err := r.read("deploy/chart/heirloom/Chart.yaml", &chart); err != nil {
		return err
	}
	if chart.AppVersion != r.version || "v"+chart.Version != r.version {
		return fmt.Errorf("deploy/chart/heirloom/Chart.yaml has version %s and appVersion %s: they have to be %s and %s",
			chart.Version, chart.AppVersion, strings.TrimPrefix(r.version, "v"), r.version)
	}
	return nil
}

// checkSeries checks that clusterctl's metadata has the series: without it, clusterctl would refuse the release.
func (r *release) checkSeries() error {
	var metadata struct {
		ReleaseSeries []struct{ Major, Minor int }
	}
	if err := r.read("deploy/clusterctl/metadata.yaml", &metadata); err != nil {
		return err
	}
	for _, series := range metadata.ReleaseSeries {
		if semver.MajorMinor(r.version) == fmt.Sprintf("v%d.%d", series.Major, series.Minor) {
			return nil
		}
	}
	return fmt.Errorf("deploy/clusterctl/metadata.yaml has no series %s", semver.MajorMinor(r.version))
}

func checkChangelog(changelog, version string) error {
	text, date, _ := section(changelog, strings.TrimPrefix(version, "v"))
	if text == "" || date == "" {
		return fmt.Errorf("CHANGELOG.md has no section [%s] with a date and with a text", strings.TrimPrefix(version, "v"))
	}
	if rest, _, _ := section(changelog, "Unreleased"); rest != "" {
		return errors.New("CHANGELOG.md still has something that is unreleased")
	}
	return nil
}

func (r *release) read(path string, into any) error {
	content, err := os.ReadFile(filepath.Join(r.source, filepath.FromSlash(path)))
	if err != nil {
		return err
	}
	if err := yaml.Unmarshal(content, into); err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	return nil
}
