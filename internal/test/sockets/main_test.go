package sockets_test

import (
	"testing"

	"github.com/retryhttp/retryhttp/internal/test/waiting"
)

func TestMain(m *testing.M) { waiting.Main(m, 8) }
