package ddl

//go:generate go run ./cmd schema schema.sql
