// Everything works without this file. It keeps what is shown true: regions marked data-live are
// replaced by those of the same page, fetched anew, while the page is visible and nobody types in
// them. It also writes and reads times in the viewer's zone, moves the focus by keys, and has a palette, by
// Ctrl-K: places to go to, and the verbs of the page.
'use strict';
(() => {
  const units = [['d', 86400], ['h', 3600], ['min', 60], ['s', 1]];
  const brief = (seconds) => {
    const s = Math.floor(Math.abs(seconds));
    const n = units.findIndex(([, size]) => s >= size);
    if (n < 0) return '0 s';
    const [name, size] = units[n];
    const rest = units[n + 1] ? Math.floor((s % size) / units[n + 1][1]) : 0;
    return Math.floor(s / size) + ' ' + name + (rest ? ' ' + rest + ' ' + units[n + 1][0] : '');
  };
  const local = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium' });
  let skew = 0; // how much this clock is ahead of the server's
  const times = () => {
    const now = (Date.now() - skew) / 1000;
    for (const t of document.querySelectorAll('time')) {
      const at = Date.parse(t.dateTime);
      if (Number.isNaN(at)) continue;
      const utc = new Date(at).toISOString().replace('T', ' ').replace('Z', ' UTC');
      const title = local.format(at) + ' here, ' + utc;
      if (t.title !== title) t.title = title;
      const ago = now - at / 1000;
      const text = t.dataset.ago === undefined ? local.format(at) : ago < -1 ? 'in ' + brief(ago) : brief(ago) + ' ago';
      if (t.textContent !== text) t.textContent = text;
    }
  };
  const clock = (doc) => {
    const read = doc.querySelector('[data-live=read] time');
    if (read) skew = Date.now() - Date.parse(read.dateTime);
  };

  const banner = document.getElementById('link');
  let seenAt = Date.now(), lack = ''; // when what is shown was read, and why it is not read anew
  const age = () => {
    if (lack) banner.textContent = lack + ' What you see is from ' + brief((Date.now() - seenAt) / 1000) + ' ago; trying again.';
    banner.hidden = !lack;
  };
  const lost = (why) => { lack = why; age(); };
  const found = () => { seenAt = Date.now(); lack = ''; age(); };

  // An element's name says what it is about, so that the same is found among others that are new:
  // a fold by its title without counts, a row by its time or first link, a link by where it leads.
  const own = (e) => {
    if (e.matches('details')) { const s = e.querySelector('summary'); return (s.querySelector('.k') || s.firstChild || s).textContent.trim(); }
    if (e.matches('li, tr')) { const t = e.querySelector('time'), a = e.querySelector('a'); return (a ? a.pathname + a.search : t ? t.dateTime : '') + e.matches('tr'); }
    if (e.matches('a')) return e.pathname + e.search;
    return (e.form ? e.formAction : '') + (e.getAttribute('aria-label') || e.textContent.trim());
  };
  const nameOf = (e, region) => {
    const parts = [e.tagName + own(e)];
    for (let up = e.parentElement; up && up !== region; up = up.parentElement) if (up.matches('details, li, tr')) parts.push(own(up));
    return parts.join(' < ');
  };
  const named = (region, which) => {
    const all = new Map();
    for (const e of region.querySelectorAll(which)) {
      const name = nameOf(e, region);
      for (let n = 0; ; n++) if (!all.has(name + ' #' + n)) { all.set(name + ' #' + n, e); break; }
    }
    return all;
  };
  const reached = 'a, button, summary, [tabindex]';
  // Fields keep what was typed, details stay as they are, the focus stays on what it was on.
  const renew = (doc) => {
    for (const old of document.querySelectorAll('[data-live]')) {
      const fresh = doc.querySelector('[data-live="' + old.dataset.live + '"]');
      if (!fresh) continue;
      const focused = old.contains(document.activeElement) ? document.activeElement : null;
      if (focused && focused.matches('input, select, textarea')) continue;
      if (String(getSelection()) && old.contains(getSelection().anchorNode)) continue;
      const next = document.importNode(fresh, true);
      const before = named(old, 'details');
      for (const [name, d] of named(next, 'details')) if (before.has(name)) d.open = before.get(name).open;
      const at = focused && (Array.from(named(old, reached)).find(([, e]) => e === focused) || [])[0];
      const place = focused ? Array.from(old.querySelectorAll(reached)).indexOf(focused) : -1;
      const scrolls = Array.from(old.querySelectorAll('.scroll, .json'), (s) => [s.scrollLeft, s.scrollTop]);
      if (old.classList.contains('scroll')) scrolls.unshift([old.scrollLeft, old.scrollTop]);
      old.replaceWith(next);
      const areas = Array.from(next.querySelectorAll('.scroll, .json'));
      if (next.classList.contains('scroll')) areas.unshift(next);
      areas.forEach((s, n) => { if (scrolls[n]) [s.scrollLeft, s.scrollTop] = scrolls[n]; });
      if (focused) { // what is gone leaves it to what has its place
        const to = named(next, reached).get(at) || Array.from(next.querySelectorAll(reached)).slice(0, place + 1).pop();
        if (to) to.focus({ preventScroll: true });
      }
    }
  };

  const every = Number(document.body.dataset.refresh || 0);
  const address = new URL(location.href);
  address.searchParams.delete('did');
  let timer = 0, asking = false;
  const ask = async () => {
    clearTimeout(timer);
    if (document.hidden || asking) return;
    asking = true;
    try {
      const answer = await fetch(address, { credentials: 'same-origin', redirect: 'error', headers: { Accept: 'text/html' }, signal: AbortSignal.timeout(60000) });
      const doc = new DOMParser().parseFromString(await answer.text(), 'text/html');
      const fault = doc.querySelector('.fault h1');
      if (answer.ok) {
        if (document.querySelector('.fault')) { location.replace(address); return; }
        clock(doc);
        renew(doc);
        times();
        found();
        if (!doc.body.dataset.refresh) { asking = false; return; } // it has ended: nothing moves any more
      } else {
        lost(fault ? fault.textContent : 'The dashboard answers ' + answer.status + '.');
      }
    } catch {
      lost('The connection to the dashboard is lost.');
    }
    asking = false;
    timer = setTimeout(ask, every);
  };
  if (every) {
    timer = setTimeout(ask, every);
    document.addEventListener('visibilitychange', ask);
  }

  const palette = document.getElementById('palette');
  const wanted = document.getElementById('palette-q');
  const list = document.getElementById('palette-list');
  const shown = 12;
  let names = null, here = [], chosen = 0, entered = null;
  // Verbs are not sent from here: the focus goes to the first field of their form.
  const verbs = () => Array.from(document.querySelectorAll('main form[method=post] button'), (button) => ({
    kind: 'verb', text: button.textContent.trim().replace(/\s+/g, ' '), act: () => {
      for (let d = button.closest('details'); d; d = d.parentElement.closest('details')) d.open = true;
      const to = button.form.querySelector('input:not([type=hidden]), select, textarea') || button;
      to.scrollIntoView({ block: 'center' });
      to.focus();
    },
  }));
  const pagesOf = () => Array.from(document.querySelectorAll('nav[aria-label=Pages] a'), (a) => ({ kind: 'page', text: a.textContent, href: a.href }));
  const choose = (n) => {
    const all = list.children;
    if (!all.length) { wanted.removeAttribute('aria-activedescendant'); return; }
    chosen = (n + all.length) % all.length;
    Array.from(all).forEach((one, k) => one.setAttribute('aria-selected', String(k === chosen)));
    all[chosen].scrollIntoView({ block: 'nearest' });
    wanted.setAttribute('aria-activedescendant', all[chosen].id);
  };
  const offer = () => {
    const text = wanted.value.trim().toLowerCase();
    const rank = (one) => { const at = one.text.toLowerCase().indexOf(text); return at < 0 ? -1 : at ? 1 : 0; };
    const all = here.concat(names || []);
    const found = [0, 1].flatMap((r) => all.filter((one) => rank(one) === r)).slice(0, shown);
    if (text) found.push({ kind: 'search', text: wanted.value.trim(), href: new URL(palette.dataset.root + 'find?q=' + encodeURIComponent(wanted.value.trim()), location.href).href });
    // What is not a word of some name is most likely an id, a key or a label.
    if (/^\d+$|=/.test(text)) found.unshift(found.pop());
    list.replaceChildren(...found.map((one, n) => {
      const item = document.createElement('li');
      item.id = 'palette-' + n;
      item.setAttribute('role', 'option');
      const kind = document.createElement('small'), name = document.createElement('bdi');
      kind.textContent = one.kind;
      name.textContent = one.text;
      item.append(name, ' ', kind);
      item.addEventListener('click', () => go(one));
      item.place = one;
      return item;
    }));
    choose(0);
  };
  const go = (one) => {
    palette.close();
    if (one.act) one.act(); else location.assign(one.href);
  };
  const openPalette = () => {
    if (palette.open) return;
    here = verbs().concat(pagesOf());
    wanted.value = '';
    palette.showModal();
    wanted.focus();
    offer();
    if (names) return;
    fetch(palette.dataset.names, { credentials: 'same-origin', redirect: 'error' }).then((answer) => (answer.ok ? answer.json() : [])).then((all) => {
      names = all.map((one) => ({ kind: one.kind, text: one.text, href: new URL(palette.dataset.root + one.path, location.href).href }));
      if (palette.open) offer();
    }).catch(() => {}); // the search still works
  };
  wanted.addEventListener('input', offer);
  palette.addEventListener('keydown', (e) => {
    if (e.key === 'ArrowDown' || e.key === 'ArrowUp') {
      e.preventDefault();
      choose(chosen + (e.key === 'ArrowDown' ? 1 : -1));
    } else if (e.key === 'Enter') {
      e.preventDefault();
      entered = !e.isComposing && list.children[chosen] && list.children[chosen].place;
    }
  });
  // It goes when the key is up: a key that is held down must not send the form to which the focus goes.
  palette.addEventListener('keyup', (e) => {
    const to = e.key === 'Enter' && entered;
    entered = null;
    if (to) go(to);
  });
  palette.addEventListener('click', (e) => { if (e.target === palette) palette.close(); }); // beside it

  document.addEventListener('keydown', (e) => {
    const q = document.getElementById('q');
    const typing = e.target.matches && e.target.matches('input, select, textarea');
    if (e.key.toLowerCase() === 'k' && (e.ctrlKey || e.metaKey)) {
      e.preventDefault();
      openPalette();
    } else if (palette.open) {
      return;
    } else if (e.key === '/' && !typing && !e.ctrlKey && !e.metaKey && !e.altKey) {
      e.preventDefault();
      q.focus();
      q.select();
    } else if (e.key === 'Escape' && e.target === q) {
      q.blur();
    } else if ((e.key === 'j' || e.key === 'k') && !typing && !e.ctrlKey && !e.metaKey && !e.altKey) {
      const rows = Array.from(document.querySelectorAll('main tbody tr a:first-of-type')).filter((a, n, all) => all.findIndex((b) => b.closest('tr') === a.closest('tr')) === n);
      const at = rows.findIndex((a) => a.closest('tr').contains(document.activeElement));
      const to = rows[e.key === 'j' ? Math.min(rows.length - 1, at + 1) : Math.max(0, at - 1)];
      if (to) to.focus();
    }
  });

  // Times are shown in the viewer's zone, so they are taken for that when they are typed.
  document.addEventListener('submit', (e) => {
    for (const field of e.target.querySelectorAll('input[name=at], input[name=since], input[name=before]')) {
      const typed = /^\s*(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d)?))?\s*$/.exec(field.value);
      const at = typed && new Date(typed[1] + 'T' + (typed[2] || '00:00'));
      if (at && !Number.isNaN(at.getTime())) field.value = at.toISOString();
    }
  });

  // What has to be JSON is checked while it is typed; the server checks it again.
  document.addEventListener('input', (e) => {
    if (!e.target.matches('textarea[name=payload], textarea[name=state]')) return;
    let fault = '';
    try { JSON.parse(e.target.value || 'null'); } catch (wrong) { fault = 'This is no JSON: ' + wrong.message; }
    e.target.setCustomValidity(fault);
    e.target.setAttribute('aria-invalid', String(fault !== ''));
  });

  // A wide screen has room for the filter.
  const fold = document.querySelector('.filter .fold');
  if (fold && matchMedia('(min-width: 861px)').matches) fold.open = true;
  clock(document);
  times();
  setInterval(() => { times(); age(); }, 1000);
})();
