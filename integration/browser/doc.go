// Package browser has the tests of the dashboard in a real browser: Chromium, on a real Postgres
// with a worker. It is a module of its own, so that what drives the browser stays out of hosts.
package browser
