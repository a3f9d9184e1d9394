// SPDX-License-Identifier: Apache-2.0

// Package browser tests the site that `make site` builds: its files, and its pages in a headless Chromium.
package browser
