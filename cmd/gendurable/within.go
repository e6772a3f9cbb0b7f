package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/ent"
	"github.com/gendurable/gendurable/ent/instance"
	"github.com/gendurable/gendurable/ent/predicate"
)

// bindable are the commands that keep to --within; it refuses the others. They read and change by
// [engine.Bounded] only, by queries that within bounds, or nothing of any instance.
var bindable = []string{
	"instance list", "instance insert", "instance get", "instance tree", "instance graph", "instance inbox", "instance why", "instance history",
	"instance signal", "instance cancel", "instance retry", "instance restart", "instance pause", "instance resume", "instance run-now", "instance reschedule",
	"instance edit", "instance rewind", "instance wait",
	"queue list", "queue pause", "queue resume", "gate list", "gate keys", "schedule list",
	"machine list", "machine graph", "machine times", "machine failures", "machine edges", "overview", "failures", "audit",
	"ui", "cluster ui", "cluster run", "mcp", // which bind what they serve and run
	"migrate status", "vet", "new", "completion", "complete", "version", // of no instance
}

// pathOf is a command without the name of the program.
func pathOf(command *kong.Node) string {
	return strings.TrimPrefix(command.FullPath(), "gendurable ")
}

// binds reports whether a command keeps to --within, if that is given.
func (o *options) binds(path string) bool {
	return len(o.Within) == 0 || slices.Contains(bindable, path)
}

// bind refuses a command that does not keep to --within.
func (o *options) bind(command *kong.Node) error {
	if path := pathOf(command); !o.binds(path) {
		return usagef("--within: %s is about all instances, and does not keep to bounds", path)
	}
	_, err := o.bounds()
	return err
}

// bounds reads --within. Of one kind an instance has one of the queues or machines, and all labels.
func (o *options) bounds() (b engine.Bounds, err error) {
	for _, one := range o.Within {
		kind, name, _ := strings.Cut(one, "=")
		label, value, labels := strings.Cut(name, "=")
		other, twice := b.Labels[label]
		switch {
		case kind == "queue" && name != "":
			b.Queues = append(b.Queues, name)
		case kind == "machine" && name != "":
			b.Machines = append(b.Machines, name)
		case kind == "label" && labels && label != "" && twice && value != other:
			return b, usagef("--within: label %q has two values, and no instance has both", label)
		case kind == "label" && labels && label != "":
			if b.Labels == nil {
				b.Labels = map[string]string{}
			}
			b.Labels[label] = value
		default:
			return b, usagef("--within: %q is none of queue=NAME, machine=NAME and label=NAME=VALUE", one)
		}
	}
	return b, nil
}

// bound reports whether --within is given.
func (d *database) bound() bool { return !d.within.IsZero() }

// instances is a query for the instances within the bounds that the predicates accept.
func (d *database) instances(all ...predicate.Instance) (*ent.InstanceQuery, error) {
	inside, err := engine.Where(engine.Filter{Within: d.within})
	if err != nil {
		return nil, fmt.Errorf("--within: %w", err)
	}
	return d.all.Ent().Instance.Query().Where(append(inside, all...)...), nil
}

// outline takes off a row what may lie outside of the bounds: a worker works for others, too.
func (d *database) outline(ctx context.Context, row *ent.Instance) error {
	if !d.bound() {
		return nil
	}
	if row.LockedBy = nil; row.ParentID == nil {
		return nil
	}
	parent, err := d.instances(instance.ID(*row.ParentID))
	if err != nil {
		return err
	}
	sees, err := parent.Exist(ctx)
	if !sees {
		row.ParentID = nil
	}
	return err
}
