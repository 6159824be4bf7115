module github.com/retryhttp/retryhttp/test/protocols

go 1.26.0

replace (
	github.com/retryhttp/retryhttp => ../../
	github.com/retryhttp/retryhttp/redisbudget => ../../redisbudget
)

require (
	github.com/quic-go/quic-go v0.65.0
	github.com/redis/go-redis/v9 v9.23.0
	github.com/retryhttp/retryhttp v0.1.0
	github.com/retryhttp/retryhttp/redisbudget v0.1.0
	github.com/stretchr/testify v1.12.1
	golang.org/x/net v0.62.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/hashicorp/go-cleanhttp v0.5.2 // indirect
	github.com/quic-go/qpack v0.6.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/crypto v0.58.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	golang.org/x/time v0.16.0 // indirect
)
