// Package orders is a shop: it takes orders, waits for their payments, ships, refunds and sends
// mail, in several processes of which one is killed and one stalls half-way, and accounts for every
// cent in the end.
//
// Where to look:
//
//   - machine.go: the machine, from the order to its fate. Start here.
//   - outside.go: the warehouse, the bank and the mail service, where effects must happen once.
//   - payments.go: the HTTP server that turns a payment into a signal, by the order's number.
//   - provider.go: the payment provider that calls it: too early, twice, until it has an answer.
//   - worker.go: a worker process.
//   - shop.go: the shop's tables, and how orders are placed.
//   - run.go: one run of all this; fleet.go and faults.go start, kill, stop and continue processes.
//   - checks.go, report.go: compare what must be true in the end, by the tables and the CSV files.
package orders

//go:generate go run -C data generate.go
