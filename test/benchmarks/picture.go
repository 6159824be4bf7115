package benchmarks

import (
	"fmt"
	"html"
	"strings"
)

// picture is an SVG with a line for each peer, and a bar in each panel.
type picture struct {
	title  string
	panels []string
	lines  []pictureLine
}

type pictureLine struct {
	name   string
	shares []float64 // from 0 to 1, one for each panel
}

const (
	pictureNames = 245 // the width of the names
	picturePanel = 230 // the width of a panel, of which a bar has 140
	pictureBar   = 140
	pictureLines = 26 // the height of a line
	pictureHead  = 64
)

// svg draws the bars of the first line in another color than the others.
func (p picture) svg() string {
	width, height := pictureNames+picturePanel*len(p.panels), pictureHead+pictureLines*len(p.lines)+8
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="sans-serif" font-size="14">
<rect width="100%%" height="100%%" fill="#fff"/>
`, width, height, width, height)
	text := func(x, y int, anchor, words string) {
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="%s" fill="#111">%s</text>`+"\n", x, y, anchor, html.EscapeString(words))
	}
	text(width/2, 24, "middle", p.title)
	for i, panel := range p.panels {
		text(pictureNames+i*picturePanel, 50, "start", panel)
	}
	for i, line := range p.lines {
		y := pictureHead + i*pictureLines
		text(pictureNames-10, y+15, "end", line.name)
		fill := "#9aa3ad"
		if i == 0 {
			fill = "#0072b2"
		}
		for j, share := range line.shares {
			x, w := pictureNames+j*picturePanel, max(1, int(share*pictureBar+0.5))
			fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="18" fill="%s"/>`+"\n", x, y+2, w, fill)
			text(x+w+6, y+15, "start", percent(share))
		}
	}
	b.WriteString("</svg>\n")
	return b.String()
}
