// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	. "github.com/onsi/gomega"
)

// No page reports errors, sends requests to other hosts, or is wider than a phone.
func TestBrowserPages(t *testing.T) {
	tab := open(t, phone)
	for page := range load(t) {
		address := strings.TrimSuffix(page, "index.html")
		for _, fault := range tab.visit(address) {
			t.Errorf("%s: %s", page, fault)
		}
		if wide := ask[string](tab, overflow); wide != "" {
			t.Errorf("%s is wider than a phone: %s", page, wide)
		}
	}
}

// overflow names the elements that make the page wider than its window: the document scrolls, or hides an element without a scroll bar.
const overflow = `(() => {
	const width = document.documentElement.clientWidth;
	if (document.documentElement.scrollWidth > width) return "it scrolls to " + document.documentElement.scrollWidth;
	const hidden = [...document.querySelectorAll("main *")].filter(element => {
		if (element.getBoundingClientRect().right <= width + 1 || !element.checkVisibility()) return false;
		for (let around = element; around && around.tagName != "MAIN"; around = around.parentElement)
			if (["auto", "scroll"].includes(getComputedStyle(around).overflowX) && around.getBoundingClientRect().right <= width + 1) return false;
		return true;
	});
	return hidden.length ? hidden[0].outerHTML.slice(0, 200) : "";
})()`

func TestBrowserSearch(t *testing.T) {
	for _, device := range []struct {
		name, search string
		width        int64
	}{{"phone", ".sidebar-container .search-input", phone}, {"laptop", "nav .search-input", laptop}} {
		t.Run(device.name, func(t *testing.T) {
			tab := open(t, device.width)
			for query, result := range map[string]string{
				"HeirloomDrift":     "runbooks/heirloomdrift/",
				"certificates.mode": "chart/",
				"no-execute-rate":   "flags/",
			} {
				tab.Expect(tab.visit("")).To(BeEmpty())
				if device.width == phone {
					tab.do(chromedp.Click(chromedp.CSS(".hamburger-menu")))
					tab.wait(`document.querySelector(".sidebar-container").getBoundingClientRect().top >= 0`)
				}
				tab.do(chromedp.Click(chromedp.CSS(device.search)), chromedp.KeyEvent(query))
				search := "document.activeElement"
				// Keys before the index is loaded find nothing: the next key does.
				tab.wait(`(` + search + `.dispatchEvent(new KeyboardEvent("keyup", {key: "e", bubbles: true})),
					!!document.querySelector('.search-results a[href^="` + strings.TrimSuffix(base+result, "/") + `"]'))`)
				tab.Expect(tab.messages()).To(BeEmpty())
			}
		})
	}
}

// On a phone, the sidebar is hidden until the user opens it, and it leads to the other pages.
func TestBrowserSidebar(t *testing.T) {
	tab := open(t, phone)
	tab.Expect(tab.visit("configuration/")).To(BeEmpty())
	shown := `(() => { const place = document.querySelector(".sidebar-container").getBoundingClientRect();
		return place.bottom > 200 && place.top < 200 })()`
	tab.Expect(ask[bool](tab, shown)).To(BeFalse())
	tab.do(chromedp.Click(chromedp.CSS(".hamburger-menu")))
	tab.wait(shown)
	link := `[...document.querySelectorAll('.sidebar-container a[href="` + base + `monitoring/"]')].find(link => link.clientHeight > 0)`
	ask[any](tab, link+`.click()`)
	tab.wait(`location.pathname == "` + base + `monitoring/" && document.querySelector("h1").textContent == "Monitoring"`)
}

// contrast returns the lowest contrast of text and its background on a page, as WCAG computes it.
const contrast = `(() => {
	const rgb = color => { const c = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
		c.fillStyle = color; c.fillRect(0, 0, 1, 1); return [...c.getImageData(0, 0, 1, 1).data]; };
	const light = ([r, g, b]) => [r, g, b].map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
		.reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
	const behind = element => {
		for (let around = element; around; around = around.parentElement) {
			const color = rgb(getComputedStyle(around).backgroundColor);
			if (color[3] == 255) return color;
		}
		return document.documentElement.classList.contains("dark") ? [17, 17, 17] : [255, 255, 255];
	};
	let lowest = [21, ""];
	for (const element of document.querySelectorAll("main :is(p, li, td, th, h1, h2, h3, a, pre span)")) {
		if (!element.checkVisibility() || !element.textContent.trim()) continue;
		const [a, b] = [light(rgb(getComputedStyle(element).color)), light(behind(element))];
		const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
		if (ratio < lowest[0]) lowest = [ratio, element.outerHTML.slice(0, 150)];
	}
	return {ratio: lowest[0], element: lowest[1]};
})()`

// Text has enough contrast to its background, also in the dark theme.
func TestBrowserContrast(t *testing.T) {
	tab := open(t, laptop)
	for _, theme := range []string{"light", "dark"} {
		for _, page := range []string{"", "configuration/", "examples/gpu-pool/", "chart/"} {
			tab.Expect(tab.visit(page)).To(BeEmpty())
			ask[any](tab, `localStorage.setItem("color-theme", "`+theme+`")`)
			tab.Expect(tab.visit(page)).To(BeEmpty())
			tab.Expect(ask[bool](tab, `document.documentElement.classList.contains("dark")`)).To(Equal(theme == "dark"))
			lowest := ask[struct {
				Ratio   float64 `json:"ratio"`
				Element string  `json:"element"`
			}](tab, contrast)
			tab.Expect(lowest.Ratio).To(BeNumerically(">=", 4.5), "%s in %s: %s", page, theme, lowest.Element)
		}
	}
}
