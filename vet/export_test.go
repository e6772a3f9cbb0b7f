package vet

import (
	"go/types"

	"github.com/gendurable/gendurable/internal/shape"
)

// FormOf is what rule stored makes of a type.
func FormOf(t types.Type, addressable bool) shape.Form {
	return shape.FormOf(checked{t}, addressable)
}
