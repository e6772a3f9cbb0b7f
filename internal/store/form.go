package store

import "strconv"

// A family of statements that differ in some parts is one function, which joins the parts by a
// form: what a statement of the family has or has not. So a text stands whole in one place, and
// nothing looks into a text, or changes one (decision D81).

// when returns a text that only some forms have.
func when(has bool, text string) string {
	if has {
		return text
	}
	return ""
}

// either returns the text for forms that have something, or the text for the others.
func either(has bool, text, other string) string {
	if has {
		return text
	}
	return other
}

// parameters counts the parameters that all forms of a statement have, and numbers those that only
// some have behind them.
type parameters int

func (p *parameters) next() string {
	*p++
	return "$" + strconv.Itoa(int(*p))
}
