/* Copyright (c) the ironspan developers. SPDX-License-Identifier: Apache-2.0 */
'use strict';
const kept = 'ironspan-key';
const given = /[#&]key=([\w-]+)/.exec(location.hash);
if (given) { sessionStorage.setItem(kept, given[1]); history.replaceState(null, '', location.pathname); }
const headers = { Authorization: 'Bearer ' + (sessionStorage.getItem(kept) || '') };
const shown = document.getElementById('shown');
const state = document.getElementById('state');

let goesOn = null;  // told once, maybe before there is a page to show it in

const say = (words) => { state.textContent = words; };
const run = () => { const found = /^#\/run\/([\w.-]+)$/.exec(location.hash); return found && found[1]; };

async function ask(path) {
  const answer = await fetch(path, { headers, cache: 'no-store' });
  if (answer.status === 401) throw new Error('The key is missing or wrong: open the address that ironspan serve printed.');
  if (!answer.ok) throw new Error(await answer.text());
  return answer;
}

async function show() {
  const name = run();
  try {
    const text = await (await ask(name ? '/run/' + name : '/site')).text();
    const page = new DOMParser().parseFromString(text, 'text/html');
    const open = new Set([...shown.querySelectorAll('details[open] > summary')].map((each) => each.textContent));
    shown.replaceChildren(...page.querySelectorAll('header, main, footer'));
    for (const each of shown.querySelectorAll('details > summary'))
      if (open.has(each.textContent)) each.parentElement.open = true;
    tell();
    document.title = page.title;
    document.getElementById('back').hidden = !name;
    say('');
  } catch (error) { say(error.message); }
}

async function follow() {
  for (;;) {
    try {
      const reader = (await ask('/events')).body.pipeThrough(new TextDecoderStream()).getReader();
      let text = '';
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        text += value;
        const events = text.split('\n\n');
        text = events.pop();
        for (const event of events) take(event);
      }
    } catch (error) { say(error.message); }
    await new Promise((resolve) => setTimeout(resolve, 3000));
  }
}

function take(event) {
  const kind = /^event: (\w+)$/m.exec(event);
  const data = /^data: (.*)$/m.exec(event);
  if (!kind || !data) return;
  if (kind[1] === 'site') { if (!run()) show(); return; }
  goesOn = JSON.parse(data[1]);
  tell();
}

function tell() {
  const live = document.getElementById('live');
  if (live && goesOn !== null && !run())
    live.replaceChildren(...new DOMParser().parseFromString(goesOn, 'text/html').body.childNodes);
}

// Who moves by keys or by ear is taken to what is new.
addEventListener('hashchange', async () => { await show(); document.getElementById('content')?.focus(); });
// What changes without a run: nodes that go, certificates that end.
setInterval(() => { if (!run() && !document.hidden) show(); }, 60000);
show();
follow();
