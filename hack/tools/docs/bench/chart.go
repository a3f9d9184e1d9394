// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"image/color"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

const (
	// width is the width of a small phone in CSS pixels, so that letters stay legible there.
	width = 360 * vg.Length(1)
	// rowHeight has room for a name and a bar below it.
	rowHeight = 36 * vg.Length(1)
	barHeight = 9 * vg.Length(1)
	letters   = 11 * vg.Length(1)
	margin    = 8 * vg.Length(1)
	// room is the maximum width of a name.
	room = width - 3*margin
	// footer has room for the labels of the axis.
	footer = 18 * vg.Length(1)
)

// These colours have enough contrast on white and on black.
func grey() color.Color     { return color.RGBA{R: 0x7d, G: 0x82, B: 0x8a, A: 0xff} }
func blue() color.Color     { return color.RGBA{R: 0x3b, G: 0x82, B: 0xf6, A: 0xff} }
func paleBlue() color.Color { return color.NRGBA{R: 0x3b, G: 0x82, B: 0xf6, A: 0x60} }
func orange() color.Color   { return color.RGBA{R: 0xd9, G: 0x77, B: 0x06, A: 0xff} }

// chart returns an SVG: for each row its name, and below it a bar from quartile to quartile, with whiskers to the minimum and the maximum.
// The thick line in a bar is the median, an orange line the target, a dashed line a ratio of 1.
func chart(s *section, rows []*row, c *contents) ([]byte, error) {
	if len(rows) == 0 {
		return nil, fmt.Errorf("no results of %s", strings.Join(s.Chart, ", "))
	}
	p := plot.New()
	p.BackgroundColor = nil
	scale(p, rows, c)
	styleAxes(p)
	// From the top down, in the order of the table.
	p.Y.Min, p.Y.Max = 0.1, float64(len(rows))+0.35
	for i, r := range rows {
		if err := addRow(p, s, r, float64(len(rows)-i)-0.5, c); err != nil {
			return nil, err
		}
	}
	scale(p, rows, c) // p.Add changes the scale
	canvas := vgsvg.NewWith(vgsvg.UseWH(width, vg.Length(len(rows))*rowHeight+footer+20))
	whole := draw.Crop(draw.New(canvas), margin, -margin, 0, 0)
	whole.FillText(style(), vg.Point{X: whole.Min.X, Y: 5}, s.Axis) // gonum would put its label into the middle
	p.Draw(draw.Crop(whole, 0, 0, footer, -2))
	var svg bytes.Buffer
	if _, err := canvas.WriteTo(&svg); err != nil {
		return nil, err
	}
	// The font with which widths are computed is not available everywhere.
	return bytes.ReplaceAll(svg.Bytes(), []byte("font-family:Liberation Sans;"),
		[]byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif;")), nil
}

func isRatio(rows []*row) bool {
	return !slices.ContainsFunc(rows, func(r *row) bool { return !strings.Contains(r.metric, "×") })
}

// scale makes the axis reach from zero to the largest value or target.
func scale(p *plot.Plot, rows []*row, c *contents) {
	most := 0.0
	for _, r := range rows {
		most = max(most, r.quantile(1))
		if t, is := c.target(r); is {
			most = max(most, t.AtMost)
		}
	}
	if isRatio(rows) {
		most = max(most, 1)
	}
	p.X.Min, p.X.Max = 0, most*1.05
	if most == 0 {
		p.X.Max = 1
	}
}

func styleAxes(p *plot.Plot) {
	p.HideY()
	p.X.Tick.Label = style()
	p.X.Tick.Label.XAlign = text.XCenter
	p.X.Tick.Label.YAlign = text.YTop
	p.X.Color = grey()
	p.X.Tick.Color = grey()
}

func style() text.Style {
	return text.Style{
		Color: grey(), Font: font.Font{Typeface: "Liberation", Variant: "Sans", Size: letters}, Handler: plot.DefaultTextHandler,
	}
}

func addRow(p *plot.Plot, s *section, r *row, y float64, c *contents) error {
	box, err := plotter.NewBoxPlot(barHeight, y, plotter.Values(r.sample.Xs))
	if err != nil {
		return err
	}
	box.Horizontal = true
	box.Quartile1, box.Median, box.Quartile3 = r.quantile(0.25), r.quantile(0.5), r.quantile(0.75)
	box.AdjLow, box.AdjHigh, box.Outside = r.quantile(0), r.quantile(1), nil
	box.CapWidth = barHeight / 2
	box.FillColor = paleBlue()
	box.BoxStyle = draw.LineStyle{Color: blue(), Width: 1}
	box.WhiskerStyle = draw.LineStyle{Color: blue(), Width: 1}
	box.MedianStyle = draw.LineStyle{Color: blue(), Width: 3}
	label, err := plotter.NewLabels(plotter.XYLabels{XYs: plotter.XYs{{X: p.X.Min, Y: y}}, Labels: []string{name(s, r)}})
	if err != nil {
		return err
	}
	label.TextStyle = []text.Style{style()}
	label.TextStyle[0].YAlign = text.YBottom
	if needs := label.TextStyle[0].Width(label.Labels[0]); needs > room {
		label.TextStyle[0].Font.Size *= room / needs
	}
	label.Offset = vg.Point{Y: barHeight/2 + 3}
	p.Add(box, beyond{label})
	if isRatio([]*row{r}) {
		p.Add(vertical(1, y, grey(), []vg.Length{3, 3}))
	}
	if t, is := c.target(r); is {
		p.Add(vertical(t.AtMost, y, orange(), nil))
	}
	return nil
}

// beyond is a plotter for which the axis leaves no room.
type beyond struct{ plot.Plotter }

// name returns the text above a bar.
func name(s *section, r *row) string {
	of := strings.TrimPrefix(r.benchmark, s.Benchmark+"/")
	if len(s.Chart) > 1 {
		return of + ", " + r.metric
	}
	return of
}

// vertical returns a line across the bar at y.
func vertical(x, y float64, stroke color.Color, dashes []vg.Length) *plotter.Line {
	return &plotter.Line{
		XYs:       plotter.XYs{{X: x, Y: y - 0.21}, {X: x, Y: y + 0.21}},
		LineStyle: draw.LineStyle{Color: stroke, Width: 1.5, Dashes: dashes},
	}
}
