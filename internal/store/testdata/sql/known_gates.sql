SELECT r.name, r.queue, r.machine, r.step, r.label, r.places, r.rate, r.rate_per, r.rate_burst, r.total, r.total_rate,
  r.total_rate_per, r.total_rate_burst, r.cost_label, r.adapt, r.run FROM "gendurable".gates r
