// Package browser has the tests of the dashboard in a real browser: Chromium, on a real Postgres
// with a worker. It is a separate module, so that the driver of the browser stays out of hosts.
package browser
