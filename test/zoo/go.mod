module github.com/retryhttp/retryhttp/test/zoo

go 1.26.0

replace (
	github.com/retryhttp/retryhttp => ../../
	github.com/retryhttp/retryhttp/otelretry => ../../otelretry
	github.com/retryhttp/retryhttp/redisbudget => ../../redisbudget
)

require (
	github.com/alicebob/miniredis/v2 v2.40.0
	github.com/aws/aws-sdk-go-v2 v1.48.0
	github.com/cristalhq/hedgedhttp v0.9.1
	github.com/gregjones/httpcache v0.0.0-20190611155906-901d90724c79
	github.com/icholy/digest v1.2.0
	github.com/jarcoal/httpmock v1.4.2
	github.com/klauspost/compress v1.20.3
	github.com/redis/go-redis/v9 v9.23.0
	github.com/retryhttp/retryhttp v0.1.0
	github.com/retryhttp/retryhttp/otelretry v0.1.0
	github.com/retryhttp/retryhttp/redisbudget v0.1.0
	github.com/spf13/afero v1.15.0
	github.com/stretchr/testify v1.12.1
	go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp v0.72.0
	go.opentelemetry.io/otel/sdk/metric v1.47.0
	golang.org/x/oauth2 v0.37.0
	gopkg.in/dnaeon/go-vcr.v4 v4.0.7
)

require (
	github.com/aws/smithy-go v1.28.9 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/felixge/httpsnoop v1.1.0 // indirect
	github.com/go-logr/logr v1.4.4 // indirect
	github.com/go-logr/stdr v1.2.2 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/hashicorp/go-cleanhttp v0.5.2 // indirect
	github.com/yuin/gopher-lua v1.1.1 // indirect
	go.opentelemetry.io/auto/sdk v1.2.1 // indirect
	go.opentelemetry.io/otel v1.47.0 // indirect
	go.opentelemetry.io/otel/log v1.47.0 // indirect
	go.opentelemetry.io/otel/metric v1.47.0 // indirect
	go.opentelemetry.io/otel/sdk v1.47.0 // indirect
	go.opentelemetry.io/otel/trace v1.47.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	go.yaml.in/yaml/v4 v4.0.0-rc.6 // indirect
	golang.org/x/sys v0.48.0 // indirect
	golang.org/x/text v0.28.0 // indirect
	golang.org/x/time v0.16.0 // indirect
)
