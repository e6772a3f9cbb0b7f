// Package recipes is the code of the guide's recipes. The guide shows files word for word, or
// links to them, and the tests show what the guide says of them.
package recipes
