package zoo

import "testing"

// A signer reads the whole body before it sends the first byte.
func TestSigV4UploadOfAStream(t *testing.T) {
	for _, k := range kinds {
		if k.form == once {
			t.Run(k.name, func(t *testing.T) { putThrough(t, &animal{wrap: signed}, &k) })
		}
	}
}
