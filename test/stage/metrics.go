// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// Metrics returns the metrics that a program serves at a URL. It asks for them without compression, which takes the program
// several times as long as writing them.
func Metrics(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", fmt.Errorf("asking for metrics: %w", err)
	}
	request.Header.Set("Accept-Encoding", "identity")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", fmt.Errorf("asking for metrics: %w", err)
	}
	text, err := io.ReadAll(response.Body)
	if response.StatusCode != http.StatusOK {
		err = errors.Join(err, fmt.Errorf("asking for metrics: %s", response.Status))
	}
	return string(text), errors.Join(err, response.Body.Close())
}
