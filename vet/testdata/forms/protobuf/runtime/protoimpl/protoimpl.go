// Package protoimpl is what code that protobuf generates imports.
package protoimpl

import "github.com/gendurable/gendurable/vet/testdata/forms/protobuf/internal/impl"

// MessageState is an alias, as there.
type MessageState = impl.MessageState
