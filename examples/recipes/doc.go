// Package recipes is the code of the guide's recipes. The guide shows each file word for word, and
// the tests show what the guide says of it.
package recipes
