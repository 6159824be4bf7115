// Package docs holds the documents to what they speak of: the code that they show, the figures
// that they quote, the tests and files that they name, and where their links lead. There is
// nothing to import here.
package docs
