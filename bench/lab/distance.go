package lab

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Distance is a way to the server that takes time: a proxy on this machine, which passes on what it
// reads half of the round trip later, and reads on meanwhile, as a network does. Its copying costs
// CPU, also without a delay.
type Distance struct {
	half     time.Duration
	listener net.Listener
	server   string
	open     sync.WaitGroup
}

// Far opens a proxy to the lab's server over which a round trip takes this much longer.
func (l *Lab) Far(ctx context.Context, roundTrip time.Duration) (*Distance, error) {
	u, err := url.Parse(l.address)
	if err != nil {
		return nil, fmt.Errorf("the server's address: %w", err)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open a proxy: %w", err)
	}
	d := &Distance{half: roundTrip / 2, listener: listener, server: u.Host}
	d.open.Go(d.accept)
	return d, nil
}

// Close waits until all connections have ended, which is when their pools are closed.
func (d *Distance) Close() error {
	err := d.listener.Close()
	d.open.Wait()
	return err
}

// Tap makes a pool go the long way.
func (d *Distance) Tap(c *pgxpool.Config) {
	c.ConnConfig.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", d.listener.Addr().String())
	}
}

func (d *Distance) accept() {
	for {
		client, err := d.listener.Accept()
		if err != nil {
			return
		}
		server, err := new(net.Dialer).Dial("tcp", d.server) //nolint:noctx // it ends with the listener
		if err != nil {
			_ = client.Close()
			continue
		}
		d.open.Go(func() { d.carry(server, client) })
		d.open.Go(func() { d.carry(client, server) })
	}
}

// parcel holds the bytes of one read.
type parcel struct {
	bytes []byte
	due   time.Time
}

// carry passes on what comes from one side, and closes both when that ends.
func (d *Distance) carry(to io.WriteCloser, from io.ReadCloser) {
	parcels := make(chan parcel, 1024)
	d.open.Go(func() {
		defer close(parcels)
		for {
			buffer := make([]byte, 64<<10)
			n, err := from.Read(buffer)
			if n > 0 {
				parcels <- parcel{buffer[:n], time.Now().Add(d.half)}
			}
			if err != nil {
				return
			}
		}
	})
	for p := range parcels {
		exactly(time.Until(p.due))
		if _, err := to.Write(p.bytes); err != nil {
			break
		}
	}
	_, _ = to.Close(), from.Close()
	for range parcels { // the reader ends
	}
}

// exactly waits by the kernel's timer. Go's timers are late by up to a millisecond.
func exactly(wait time.Duration) {
	if wait <= 0 {
		return
	}
	t := syscall.NsecToTimespec(wait.Nanoseconds())
	_ = syscall.Nanosleep(&t, nil) // early at a signal, which is rare
}
