package recipes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

type Sync struct{ Customer int64 }

var Push = fsm.Declare[Sync, fsm.None]("crm.push", fsm.Queue("crm"))

// crmLimits are the limits of the API, for all processes together.
var crmLimits = engine.Gate{
	Name: "crm", Machine: Push.Name(),
	Places: 4,                                               // so many calls at a time,
	Rate:   engine.Rate{N: 50, Per: time.Second, Burst: 10}, // and so many a second
}

func limit(ctx context.Context, eng *engine.Engine) error { // when a program starts
	_, err := eng.Admin().SetGate(ctx, crmLimits)
	return err
}

func job(client *http.Client) fsm.Definition {
	return Push.Job(func(ctx context.Context, s Sync) (fsm.None, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodPut, fmt.Sprintf("https://crm.example/customers/%d", s.Customer), nil)
		if err != nil {
			return fsm.None{}, fsm.Permanent(err)
		}
		info, _ := fsm.InfoFrom(ctx)
		request.Header.Set("Idempotency-Key", info.IdempotencyKey("put"))
		response, err := client.Do(request)
		if err != nil {
			return fsm.None{}, err
		}
		defer response.Body.Close()
		if response.StatusCode == http.StatusTooManyRequests { // nobody calls before that time
			after, _ := time.ParseDuration(response.Header.Get("Retry-After") + "s")
			return fsm.None{}, fsm.Throttled(errors.New("too many requests"), after)
		}
		if response.StatusCode >= 400 {
			return fsm.None{}, errors.New(response.Status)
		}
		return fsm.None{}, nil
	}).Retry(fsm.RetryPolicy{MaxAttempts: fsm.Unlimited})
}
