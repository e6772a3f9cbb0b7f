// Package driver tests entpgx as anyone's driver of ent, beside ent's own driver.
package driver
