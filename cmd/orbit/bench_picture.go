package main

import (
	"errors"
	"fmt"
	"html"
	"io"
	"math"
	"os"
	"strings"
)

// The picture has bars of tasks a second, against F, above the distributions of times under open load.
const (
	pictureWidth = 900
	barLeft      = 330 // where bars begin
	barHeight    = 18
	barGap       = 6
	plotHeight   = 260
)

func (r benchReport) writeSVG(name string) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(r.draw(file), file.Close())
}

func (r benchReport) draw(w io.Writer) error {
	var rates, curves []benchFigure
	for _, f := range r.Figures {
		switch {
		case f.PerF > 0 && f.Callers > 0:
			rates = append(rates, f)
		case f.Suite == "latency" && f.times != nil && f.times.TotalCount() > 0:
			curves = append(curves, f)
		}
	}
	var out strings.Builder
	y := drawBars(&out, 30, rates)
	y = drawCurves(&out, y, curves)
	_, err := fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" font-family="sans-serif" font-size="12" fill="#222">
<rect width="100%%" height="100%%" fill="#fff"/>
%s</svg>
`, pictureWidth, y+20, out.String())
	return err
}

// drawBars answers where the next part may begin.
func drawBars(out *strings.Builder, y int, figures []benchFigure) int {
	if len(figures) == 0 {
		return y
	}
	most := 1.0
	for _, f := range figures {
		most = math.Max(most, f.PerF)
	}
	scale := float64(pictureWidth-barLeft-130) / most
	fmt.Fprintf(out, `<text x="20" y="%d" font-size="15">Tasks a second; the line is F, the durable one-row commits a second of the same server</text>`+"\n", y)
	y += 20
	top := y
	for _, f := range figures {
		color := "#4477aa"
		if f.Suite == "life" {
			color = "#228833"
		}
		name := fmt.Sprintf("%s (callers %d, batch %d, replicas %d)", f.Figure, f.Callers, f.Batch, f.Replicas)
		width := f.PerF * scale
		fmt.Fprintf(out, `<text x="%d" y="%d" text-anchor="end">%s</text><rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/><text x="%.1f" y="%d">%.0f (%.2f F)</text>`+"\n",
			barLeft-8, y+13, html.EscapeString(name), barLeft, y, width, barHeight, color, barLeft+width+6, y+13, f.Value, f.PerF)
		y += barHeight + barGap
	}
	at := float64(barLeft) + scale
	fmt.Fprintf(out, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#cc3311" stroke-width="1.5"/>`+"\n", at, top-4, at, y)
	return y + 30
}

var curveColors = []string{"#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377"}

// drawCurves plots times over the share of calls that took no longer, each nine as wide as the one before.
func drawCurves(out *strings.Builder, y int, figures []benchFigure) int {
	if len(figures) == 0 {
		return y
	}
	const left, right, nines = 70, pictureWidth - 270, 3.0
	low, high := math.Inf(1), 1.0
	for _, f := range figures {
		low, high = math.Min(low, float64(f.times.Min())), math.Max(high, float64(f.times.Max()))
	}
	floor, ceiling := math.Floor(math.Log10(math.Max(low, 1))), math.Ceil(math.Log10(high))
	if ceiling == floor {
		ceiling++
	}
	fmt.Fprintf(out, `<text x="20" y="%d" font-size="15">Milliseconds from the instant at which a task was to be sent</text>`+"\n", y)
	top := y + 15
	bottom := top + plotHeight
	atX := func(share float64) float64 { return left + (right-left)*math.Min(-math.Log10(1-share), nines)/nines }
	atY := func(us float64) float64 {
		return float64(bottom) - plotHeight*(math.Log10(us)-floor)/(ceiling-floor)
	}
	for power := floor; power <= ceiling; power++ {
		us := math.Pow(10, power)
		fmt.Fprintf(out, `<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%g</text>`+"\n", left, atY(us), right, atY(us), left-6, atY(us)+4, us/1000)
	}
	for _, share := range []float64{0, 0.5, 0.9, 0.99, 0.999} {
		fmt.Fprintf(out, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#ddd"/><text x="%.1f" y="%d" text-anchor="middle">%g %%</text>`+"\n", atX(share), top, atX(share), bottom, atX(share), bottom+16, share*100)
	}
	for i, f := range figures {
		color := curveColors[i%len(curveColors)]
		var points []string
		for step := 0.0; step <= nines; step += 0.05 {
			share := 1 - math.Pow(10, -step)
			points = append(points, fmt.Sprintf("%.1f,%.1f", atX(share), atY(math.Max(float64(f.times.ValueAtQuantile(share*100)), 1))))
		}
		fmt.Fprintf(out, `<polyline fill="none" stroke="%s" stroke-width="2" points="%s"/><text x="%d" y="%d" fill="%s">%s</text>`+"\n",
			color, strings.Join(points, " "), right+15, top+15+18*i, color, html.EscapeString(f.Figure))
	}
	return bottom + 30
}
