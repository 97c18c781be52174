// One consumer: its limits, and what can be done about them.
import * as api from './api.js';
import { h, show, bar } from './dom.js';
import { text, share, until, rule } from './amount.js';
import { raise, adjust } from './actions.js';

export const title = 'Consumer';

let name, parts, own;

export function open(main, part) {
	name = part;
	own = new Map();
	parts = { body: h('tbody'), note: h('p', { class: 'quiet' }) };
	show(main,
		h('p', {}, h('a', { href: '#/consumers' }, '← All consumers')),
		h('table', { class: 'list one' },
			h('caption', { class: 'unseen' }, 'Limits of this consumer'),
			h('thead', {}, h('tr', {}, ['Rule', 'Share', 'Used', 'Reserved', 'Limit', 'Resets in'].map((t, i) => h('th', { scope: 'col', class: i > 1 && 'number' }, t)), h('td', {}))),
			parts.body),
		parts.note,
		h('p', { class: 'quiet' }, 'A limit that is raised here acts at once and on all replicas, and is kept in the store. The config stays as it is.'));
}

export async function refresh(signal) {
	const of = name;
	const [rows, overridden] = await Promise.all([
		api.usageOf(of),
		api.overrides(of).catch((e) => {
			if (e.status !== 404) throw e;
			return [];
		}),
	]);
	if (signal.aborted) return null;
	own = new Map(overridden.map((o) => [JSON.stringify([o.instance, o.rule, o.model ?? '']), o]));
	rows.sort((a, b) => share(b) - share(a));
	show(parts.body, rows.map(line));
	parts.note.textContent = rows.length ? '' : 'No limit counts this consumer.';
	return null;
}

function overrideOf(row) {
	return own.get(JSON.stringify([row.instance, row.rule, row.model]));
}

function line(row) {
	const used = share(row);
	const label = `${rule(row)} of ${row.instance}`;
	const act = (what, how) => h('button', { type: 'button', 'data-key': what + label, 'aria-label': `${what}: ${label}`, click: () => how(row, overrideOf(row)) }, what);
	return h('tr', {},
		h('th', { scope: 'row', class: 'rule' }, rule(row), h('span', { class: 'instance' }, row.instance)),
		h('td', { class: 'used' }, bar(used, label), h('span', { class: 'percent' }, Math.round(used * 100) + ' %')),
		h('td', { class: 'number amount' }, text(row.used, row.unit)),
		h('td', { class: 'number reserved', 'data-label': 'reserved' }, text(row.reserved, row.unit)),
		h('td', { class: 'number of' }, overrideOf(row) && h('span', { class: 'tag' }, 'own limit'), text(row.limit, row.unit)),
		h('td', { class: 'number resets' }, until(row.resets_at)),
		h('td', { class: 'actions' }, act('Raise limit', raise), row.unit !== 'concurrent' && act('Adjust use', adjust)));
}
