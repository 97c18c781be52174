// Spend and refusals over time, from the metrics of this replica.
import * as api from './api.js';
import { h, show } from './dom.js';
import { text, clock } from './amount.js';
import { chart } from './chart.js';

export const title = 'Spend and refusals';

const ranges = [[15, '15 minutes'], [60, 'Hour'], [360, '6 hours'], [1440, 'Day']];
const maxBars = 90;

let points = []; // all that has been read
let minutes = 15;
let parts, last;

export function open(main) {
	const range = h('select', {
		'aria-label': 'Time shown', change: () => {
			minutes = Number(range.value);
			draw();
		},
	}, ranges.map(([value, label]) => h('option', { value, selected: value === minutes }, label)));
	parts = {
		note: h('p', { class: 'quiet' }), sums: h('dl', { class: 'sums' }),
		spend: chart('Spend', 'usd'), refused: chart('Refusals', 'refused'),
		limiters: h('div', {}), top: h('div', {}),
	};
	show(main,
		h('div', { class: 'tools' }, range), parts.note, parts.sums,
		h('div', { class: 'charts' }, parts.spend.box, parts.refused.box),
		h('div', { class: 'sides' },
			h('section', { 'aria-labelledby': 'top' }, h('h2', { id: 'top' }, 'Who spends'), parts.top),
			h('section', { 'aria-labelledby': 'refusing' }, h('h2', { id: 'refusing' }, 'What refuses'), parts.limiters)));
	draw();
}

export async function refresh(signal) {
	const got = await api.history(points.at(-1)?.at);
	if (signal.aborted) return null;
	points.push(...got.points);
	last = got;
	draw();
	if (got.error) throw new Error(got.error);
	return got.every;
}

// bars puts points together, so that there are not more bars than can be seen.
function bars(from, to) {
	const every = Math.max(last?.every ?? 5000, Math.ceil((to - from) / maxBars / 5000) * 5000);
	const first = Math.floor(from / every) * every;
	const all = [];
	for (let at = first; at <= to; at += every) all.push({ at, usd: null, refused: null });
	for (const p of points) {
		const b = all[Math.floor((p.at - first) / every)];
		if (!b) continue;
		b.usd = (b.usd ?? 0) + p.usd;
		b.refused = (b.refused ?? 0) + p.refused;
	}
	return { all, every };
}

function draw() {
	// At first there is less than was asked for; two minutes are the least that is shown.
	const to = Date.now(), from = Math.max(to - minutes * 60000, Math.min(last?.since ?? 0, to - 120000));
	const shown = points.filter((p) => p.at >= from);
	const sum = (f) => shown.reduce((n, p) => n + f(p), 0);
	parts.note.textContent = last?.since
		? `Of this replica, read from its metrics every ${last.every / 1000} seconds since ${clock(last.since)}, when caddy llm-ui began. Nothing is known of the time before. Bills are made of the counts under Consumers, not of these.`
		: 'Waiting for the first reading of the metrics …';
	const count = (n) => n.toLocaleString('en-US', { maximumFractionDigits: 0 });
	show(parts.sums, [['Spend', text(sum((p) => p.usd), 'usd')], ['Tokens', count(sum((p) => p.tokens))], ['Calls', count(sum((p) => p.calls))], ['Refused', count(sum((p) => p.refused))]]
		.map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, value))));
	const { all, every } = bars(from, to);
	parts.spend.draw(all, every);
	parts.refused.draw(all, every);

	const by = new Map();
	for (const p of shown) for (const [name, n] of Object.entries(p.limiters ?? {})) by.set(name, (by.get(name) ?? 0) + n);
	show(parts.limiters, table(['Limit', 'Refusals'], [...by].sort((a, b) => b[1] - a[1]).map(([name, n]) => [name, count(n)]), 'Nothing was refused.'));
	show(parts.top, table(['Consumer', 'Spend', 'Tokens', 'Calls', 'Refused'],
		(last?.top ?? []).map((t) => [t.consumer, text(t.usd, 'usd'), count(t.tokens), count(t.calls), count(t.refused)]), 'Nobody has called.'));
}

function table(head, rows, none) {
	if (!rows.length) return h('p', { class: 'quiet' }, none);
	return h('table', { class: 'small' },
		h('thead', {}, h('tr', {}, head.map((t, i) => h('th', { scope: 'col', class: i > 0 && 'number' }, t)))),
		h('tbody', {}, rows.map((r) => h('tr', {}, r.map((t, i) => (i ? h('td', { class: 'number' }, t) : h('th', { scope: 'row' }, t)))))));
}
