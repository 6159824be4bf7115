module github.com/retryhttp/retryhttp/test/suites

go 1.26.0
