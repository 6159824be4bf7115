package main

var suites = []suite{
	{
		name: "resty", module: "resty.dev/v3", version: "v3.0.0-rc.4", packages: []string{"."},
	},
	{
		name: "client-go", module: "k8s.io/client-go", version: "v0.37.2", packages: []string{"./rest/...", "./transport/..."},
	},
	{
		name: "minio", module: "github.com/minio/minio-go/v7", version: "v7.4.1", packages: []string{"."},
		flags: []string{"-short"}, // the others need a server of their own
	},
	{
		name: "containerregistry", module: "github.com/google/go-containerregistry", version: "v0.22.1",
		packages: []string{"./pkg/v1/remote/...", "./pkg/registry/...", "./pkg/crane/...", "./pkg/v1/google/..."},
	},
}
