// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"strconv"
	"strings"
)

// BaseURL checks the URL under which workload clusters reach Heirloom, and returns it without a slash at its end. What an
// API server would refuse in a webhook's URL is refused here, where an operator sees it.
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
	case !validPort(u):
		return "", errors.New("must have a port between 1 and 65535, or none")
	}
	base := strings.TrimSuffix(u.EscapedPath(), "/")
	if base != "" && path.Clean(base) != base || strings.HasSuffix(base, "/") || strings.Contains(base, "%") {
		return "", errors.New("must have a plain path: without empty, . or .. segments and without %")
	}
	return "https://" + u.Host + base, nil
}

func validPort(u *url.URL) bool {
	if u.Port() == "" {
		return !strings.HasSuffix(u.Host, ":")
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	return err == nil && port > 0
}
