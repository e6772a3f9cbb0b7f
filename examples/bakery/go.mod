module example.com/bakery

go 1.26.0

require (
	entgo.io/ent v0.14.6
	github.com/gendurable/gendurable v0.1.0
	github.com/gendurable/gendurable/telemetry v0.1.0
	github.com/jackc/pgx/v5 v5.12.0
	github.com/prometheus/client_golang v1.25.0
	github.com/prometheus/client_model v0.6.3
	go.opentelemetry.io/otel/exporters/prometheus v0.69.0
	go.opentelemetry.io/otel/sdk/metric v1.47.0
)
