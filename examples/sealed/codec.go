package main

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/gendurable/gendurable/fsm"
)

// sealed is a codec that encrypts what it stores, by AES-GCM. It seals with one key and opens with
// any: to rotate, add a key everywhere, then name it everywhere, and drop the old one when nothing
// that it sealed is kept any more.
type sealed struct {
	key   string // the name of the one to seal with
	keys  map[string]cipher.AEAD
	plain fsm.JSON
}

// box is the value that Postgres stores.
type box struct {
	Key   string `json:"key"`
	Box   []byte `json:"box"`
	Nonce []byte `json:"nonce"`
}

// newSealed makes the codec of keys of 16, 24 or 32 bytes, by name.
func newSealed(key string, keys map[string][]byte) (*sealed, error) {
	s := &sealed{key: key, keys: map[string]cipher.AEAD{}}
	for name, secret := range keys {
		block, err := aes.NewCipher(secret)
		if err != nil {
			return nil, fmt.Errorf("key %q: %w", name, err)
		}
		if s.keys[name], err = cipher.NewGCM(block); err != nil {
			return nil, fmt.Errorf("key %q: %w", name, err)
		}
	}
	if s.keys[key] == nil {
		return nil, fmt.Errorf("no key %q", key)
	}
	return s, nil
}

// Encode seals the JSON of v.
func (s *sealed) Encode(v any) (json.RawMessage, error) {
	text, err := s.plain.Encode(v)
	if err != nil {
		return nil, err
	}
	b := box{Key: s.key, Nonce: make([]byte, s.keys[s.key].NonceSize())}
	if _, err := rand.Read(b.Nonce); err != nil {
		return nil, err
	}
	b.Box = s.keys[s.key].Seal(nil, b.Nonce, text, []byte(s.key))
	return json.Marshal(b)
}

// Decode opens what Encode made, and takes what was stored before there was a codec as it is.
func (s *sealed) Decode(raw json.RawMessage, v any) error {
	var b box
	if json.Unmarshal(raw, &b) != nil || b.Key == "" || b.Nonce == nil {
		return s.plain.Decode(raw, v)
	}
	aead := s.keys[b.Key]
	switch {
	case aead == nil:
		return fmt.Errorf("it was sealed with key %q, which is not here", b.Key)
	case len(b.Nonce) != aead.NonceSize():
		return errors.New("the nonce is damaged")
	}
	text, err := aead.Open(nil, b.Nonce, b.Box, []byte(b.Key))
	if err != nil {
		return fmt.Errorf("open it with key %q: %w", b.Key, err)
	}
	return s.plain.Decode(text, v)
}
