// SPDX-License-Identifier: Apache-2.0

// Release makes the files of a release other than image and chart, and checks whether the sources are ready for a release. It is a separate
// module, because the library that writes SBOMs has more dependencies than the rest of Heirloom's checks.
//
//	release check       the requirements of a tag: one version everywhere, and a section of the changelog
//	release package     archives and a krew manifest of the kubectl plugin, the program itself, an SBOM of each
//	release notes       release-notes.md, the section of the changelog
//
// The same programs, version and time give the same bytes.
package main
