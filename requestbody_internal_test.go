package retryhttp

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestReadingOfABodySentAsItIsCanBeCut(t *testing.T) {
	assert.NotPanics(t, reading{}.cut)
	assert.False(t, reading{}.usesGetBody())
}
