// All consumers against their limits.
import { h, show, bar } from './dom.js';
import { text, until, rule } from './amount.js';
import { read, Usage } from './usage.js';
import { Pager, counted } from './pager.js';

export const title = 'Consumers';

const byName = new Intl.Collator('en', { numeric: true }).compare;

// What is chosen stays while other views are looked at.
const chosen = { search: '', rule: '', sort: 'share', down: true };
const pager = new Pager(draw);
const columns = [
	{ id: 'name', title: 'Consumer', compare: (a, b) => byName(a.name, b.name) },
	{ id: 'rule', title: 'Rule', compare: (a, b) => byName(a.row.rule, b.row.rule) },
	{ id: 'share', title: 'Share', compare: (a, b) => a.row.share - b.row.share, down: true },
	{ id: 'used', title: 'Used', number: true, compare: (a, b) => a.row.used - b.row.used, down: true },
	{ id: 'limit', title: 'Limit', number: true, compare: (a, b) => a.row.limit - b.row.limit, down: true },
	{ id: 'resets', title: 'Resets in', number: true, compare: (a, b) => byName(a.row.resets_at ?? '~', b.row.resets_at ?? '~') },
];

let usage = new Usage();
let parts;

export function open(main) {
	const search = h('input', {
		type: 'search', value: chosen.search, placeholder: 'Name', 'aria-label': 'Search consumers', autocomplete: 'off', spellcheck: 'false',
		input: () => change({ search: search.value.trim().toLowerCase() }),
	});
	const ruleChoice = h('select', { 'aria-label': 'Limit', change: () => change({ rule: ruleChoice.value }) });
	parts = {
		ruleChoice, count: h('p', { class: 'count', role: 'status' }), head: h('thead'), body: h('tbody'),
	};
	show(main,
		h('div', { class: 'tools' }, search, ruleChoice, parts.count),
		h('table', { class: 'list consumers' }, h('caption', { class: 'unseen' }, 'Consumers and how much of their limits is used'), parts.head, parts.body),
		pager.open());
	drawHead();
	draw();
}

export async function refresh(signal) {
	const began = performance.now();
	const first = usage.consumers.size === 0;
	const got = await read((soFar) => {
		// The first time, what is there is better than waiting for all of it.
		if (first && !signal.aborted) {
			usage = soFar;
			draw(true);
		}
	}, signal);
	if (!got) return null;
	usage = got;
	draw();
	return Math.max(5000, 10 * (performance.now() - began));
}

// change shows what is chosen now, from its first page.
function change(to) {
	pager.page = 0;
	Object.assign(chosen, to);
	draw();
}

function sortBy(column) {
	const down = chosen.sort === column.id ? !chosen.down : Boolean(column.down);
	change({ sort: column.id, down });
	drawHead();
}

function drawHead() {
	show(parts.head, h('tr', {}, columns.map((c) => h('th', {
		scope: 'col', class: c.number && 'number', 'aria-sort': chosen.sort === c.id && (chosen.down ? 'descending' : 'ascending'),
	}, h('button', { type: 'button', 'data-key': c.id, click: () => sortBy(c) }, c.title)))));
}

// matching are the consumers that are looked for, with the row that each is shown by.
function matching() {
	const found = [];
	for (const c of usage.consumers.values()) {
		if (chosen.search && !c.lower.includes(chosen.search)) continue;
		const row = chosen.rule ? c.rows.find((r) => r.key === chosen.rule) : c.tightest;
		if (row) found.push({ name: c.name, row });
	}
	const { compare } = columns.find((c) => c.id === chosen.sort);
	const turn = chosen.down ? -1 : 1;
	return found.sort((a, b) => turn * compare(a, b) || byName(a.name, b.name));
}

function draw(more) {
	drawRules();
	const found = matching();
	const count = counted(found.length, usage.consumers.size, 'consumer') + (more ? ', loading more …' : '');
	if (parts.count.textContent !== count) parts.count.textContent = count;
	const shown = pager.of(found);
	show(parts.body, shown.length ? shown.map(line) : h('tr', {}, h('td', { colspan: columns.length, class: 'quiet' }, nothing(more))));
}

function nothing(more) {
	if (more) return 'Loading …';
	return chosen.search || chosen.rule ? 'None matches.' : 'Nobody has called yet. A consumer is listed once it has made a call that a limit counts.';
}

function line({ name, row }) {
	return h('tr', {},
		h('th', { scope: 'row' }, h('a', { href: '#/consumers/' + encodeURIComponent(name), 'data-key': 'c' + name }, name)),
		h('td', { class: 'rule' }, rule(row), h('span', { class: 'instance' }, row.instance)),
		h('td', { class: 'used' }, bar(row.share, `${name}, ${rule(row)}`), h('span', { class: 'percent' }, Math.round(row.share * 100) + ' %')),
		h('td', { class: 'number amount' }, text(row.used, row.unit)),
		h('td', { class: 'number of' }, text(row.limit, row.unit)),
		h('td', { class: 'number resets' }, until(row.resets_at)));
}

function drawRules() {
	const options = [['', 'Closest to its limit'], ...[...usage.rules].sort((a, b) => byName(a[1], b[1]))];
	const have = [...parts.ruleChoice.options].map((o) => o.value);
	if (have.length === options.length && options.every(([key], i) => key === have[i])) return;
	if (!options.some(([key]) => key === chosen.rule) && usage.rules.size) chosen.rule = '';
	parts.ruleChoice.replaceChildren(...options.map(([value, label]) => h('option', { value, selected: value === chosen.rule }, label)));
}
