// Tests of the documentation: its links, and its site in a browser.
module github.com/heirloom-dev/heirloom/test/tools/site

go 1.26.0

require (
	github.com/chromedp/cdproto v0.159.2
	github.com/chromedp/chromedp v0.23.0
	github.com/onsi/gomega v1.42.1
	github.com/yuin/goldmark v1.8.7
	golang.org/x/net v0.56.0
)

require (
	github.com/go-json-experiment/json v0.0.0-20260213210345-44df1a37e875 // indirect
	github.com/google/go-cmp v0.7.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/text v0.38.0 // indirect
)
