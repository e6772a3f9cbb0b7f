INSERT INTO "gendurable".gates AS r (name, queue, machine, step, label, places, rate, rate_per, rate_burst, total, total_rate,
  total_rate_per, total_rate_burst, cost_label, adapt, run)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
ON CONFLICT (name) DO UPDATE SET queue = excluded.queue, machine = excluded.machine, step = excluded.step, label = excluded.label,
  places = excluded.places, rate = excluded.rate, rate_per = excluded.rate_per, rate_burst = excluded.rate_burst, total = excluded.total,
  total_rate = excluded.total_rate, total_rate_per = excluded.total_rate_per, total_rate_burst = excluded.total_rate_burst,
  cost_label = excluded.cost_label, adapt = excluded.adapt, run = excluded.run, updated_at = clock_timestamp()
WHERE (r.name, r.queue, r.machine, r.step, r.label, r.places, r.rate, r.rate_per, r.rate_burst, r.total, r.total_rate,
  r.total_rate_per, r.total_rate_burst, r.cost_label, r.adapt, r.run)
  IS DISTINCT FROM (excluded.name, excluded.queue, excluded.machine, excluded.step, excluded.label, excluded.places, excluded.rate,
    excluded.rate_per, excluded.rate_burst, excluded.total, excluded.total_rate, excluded.total_rate_per, excluded.total_rate_burst,
    excluded.cost_label, excluded.adapt, excluded.run)
RETURNING r.name
