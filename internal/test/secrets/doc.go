// Package secrets looks for what errors and logs must not say, in all that requests, answers and
// other packages' errors put into them. There is nothing to import here.
package secrets
