// Package recipes is the code of the guide's recipes: each file is what the guide shows, word for word, and each test shows what the guide
// says of it.
package recipes
