// SPDX-License-Identifier: Apache-2.0

// Package check finds out whether Heirloom is installed and works: a list of checks that run beside each other. One that has no
// rights or gets no answer says so, and stops none of the others.
package check
