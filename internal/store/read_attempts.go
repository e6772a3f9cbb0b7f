package store

// remembered begins the expression for the errors of an instance's attempts with one more, the
// newest: the last 19, then the entry that the statement completes with `'at', …, 'kind', …,
// 'error', left(…, 1024))`. It is part of the statement that commits the error's consequence, so it
// costs no round trip. Statements for Done, and for outcomes that keep their claim, do not contain
// it. If foreign SQL has put anything but a list there, the expression replaces it: an SQL error
// here would keep the instance from failing.
const remembered = `coalesce(jsonb_path_query_array(CASE WHEN jsonb_typeof(g.errors) = 'array' THEN g.errors END, '$[last - 18 to last]'), '[]')
    || jsonb_build_object('step', g.step, 'visit', g.visit, 'attempt', g.attempt, `
