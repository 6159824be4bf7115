// Package dashboard generates a Grafana dashboard that answers the questions of a person on call.
package dashboard

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"

	"github.com/retryhttp/retryhttp/otelretry/examples/operate/questions"
)

// Runbook says what to do about what the dashboard shows.
const Runbook = "https://github.com/retryhttp/retryhttp/blob/main/docs/operating.md"

// JSON returns the dashboard as Grafana imports it.
func JSON() ([]byte, error) {
	built, err := build()
	if err != nil {
		return nil, err
	}
	text, err := json.MarshalIndent(built, "", "  ")
	return append(text, '\n'), err
}

func build() (dashboard.Dashboard, error) {
	b := dashboard.NewDashboardBuilder("HTTP requests and their retries").
		Uid("retryhttp").
		Description("What a person on call asks about requests that retryhttp makes.").
		Tags([]string{"retryhttp"}).
		Tooltip(dashboard.DashboardCursorSyncCrosshair).
		Refresh("10s").
		Time("now-30m", "now").
		Link(dashboard.NewDashboardLinkBuilder("Runbook").
			Type(dashboard.DashboardLinkTypeLink).Url(Runbook).TargetBlank(true)).
		WithVariable(dashboard.NewDatasourceVariableBuilder("source").Label("Data source").Type("prometheus"))
	group := ""
	for _, q := range questions.All {
		if q.Group != group {
			group = q.Group
			b.WithRow(dashboard.NewRowBuilder(group))
		}
		b.WithPanel(panel(q))
	}
	return b.Build()
}

func panel(q questions.Question) cog.Builder[dashboard.Panel] {
	source := common.DataSourceRef{Type: cog.ToPtr("prometheus"), Uid: cog.ToPtr("${source}")}
	if q.Table {
		return table.NewPanelBuilder().Title(q.Title).Unit(q.Unit).Datasource(source).
			Height(8).Span(12).WithTarget(times(q))
	}
	return timeseries.NewPanelBuilder().Title(q.Title).Unit(q.Unit).Datasource(source).
		Min(0).FillOpacity(10).Height(8).Span(12).WithTarget(series(q))
}

func series(q questions.Question) cog.Builder[variants.Dataquery] {
	isHistogram := strings.HasPrefix(q.Query, "histogram_quantile")
	return prometheus.NewDataqueryBuilder().RefId("A").
		Expr(q.In("$__rate_interval", "15s")).LegendFormat(legend(q)).Exemplar(isHistogram)
}

// times is a query for times, which Grafana counts in milliseconds.
func times(q questions.Question) cog.Builder[variants.Dataquery] {
	return prometheus.NewDataqueryBuilder().RefId("A").
		Expr(fmt.Sprintf("1000 * (%s)", q.In("$__rate_interval", "15s"))).
		Format(prometheus.PromQueryFormatTable).Instant()
}

var grouping = regexp.MustCompile(`by \(([^)]*)\)`)

// legend names the labels that a query groups by.
func legend(q questions.Question) string {
	var names []string
	for name := range strings.SplitSeq(grouping.FindStringSubmatch(q.Query)[1], ", ") {
		if name != "le" {
			names = append(names, "{{"+name+"}}")
		}
	}
	return strings.Join(names, " ")
}
