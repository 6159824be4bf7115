module github.com/retryhttp/retryhttp/retrylab

go 1.26.0

// A module with a replace cannot be run as a command by its version. The release removes this line.
replace github.com/retryhttp/retryhttp => ../

require (
	github.com/retryhttp/retryhttp v0.1.0
	github.com/stretchr/testify v1.12.1
)

require (
	github.com/hashicorp/go-cleanhttp v0.5.2 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/time v0.16.0 // indirect
)
