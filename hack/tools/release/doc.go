// SPDX-License-Identifier: Apache-2.0

// Release makes the files of a release that are neither image nor chart, and says whether the sources are ready for one.
// It is in a module of its own, because what writes SBOMs brings more with it than the rest of Heirloom's checks.
//
//	release check       what a tag needs: one version everywhere, and a section of the changelog
//	release package     archives and a krew manifest of the kubectl plugin, the program itself, an SBOM of each
//	release notes       release-notes.md, the section of the changelog
//
// The same programs, version and time give the same bytes.
package main
