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

// crmAtOnce is how many calls may be under way, over all processes.
const crmAtOnce = 4

func push(ctx context.Context, eng *engine.Engine, customer int64) (fsm.ID, error) {
	lane := fmt.Sprintf("crm:%d", customer%crmAtOnce) // a lane runs one at a time, wherever it runs
	return eng.Insert(ctx, Push.New(Sync{customer}).PartitionKey(lane))
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
		if response.StatusCode == http.StatusTooManyRequests {
			return fsm.None{}, fsm.RetryAfter(30*time.Second, errors.New("too many requests"))
		}
		if response.StatusCode >= 400 {
			return fsm.None{}, errors.New(response.Status)
		}
		return fsm.None{}, nil
	}).Retry(fsm.RetryPolicy{MaxAttempts: fsm.Unlimited})
}

var crmQueues = map[string]engine.Queue{"crm": {Concurrency: crmAtOnce}} // of each process
