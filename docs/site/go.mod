// The theme of the site. Hugo brings it with the go command; no Go program imports it.
module github.com/heirloom-dev/heirloom/docs/site

go 1.26.0

require github.com/imfing/hextra v0.9.7
