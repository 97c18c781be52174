// The limits themselves: of the backend, which all share, and of each consumer.
import * as api from './api.js';
import { h, show, bar, say } from './dom.js';
import { text, share, until, rule } from './amount.js';
import { read } from './usage.js';
import { form } from './edit.js';
import { raise } from './actions.js';

export const title = 'Limits';

let parts, editing;

export function open(main) {
	editing = null;
	parts = { backend: h('div', {}), consumer: h('div', {}), note: h('p', { class: 'quiet' }) };
	show(main,
		h('p', { class: 'note' },
			h('strong', {}, 'Which replicas? '),
			'A limit that is edited here is edited in the config of this replica: it acts here alone, until the config is loaded from its file again. ',
			'Write it there too. A consumer’s own limit, set under Consumers, acts on all replicas and stays. Counts are kept in both cases.'),
		parts.note,
		h('div', { class: 'sides' },
			h('section', { 'aria-labelledby': 'side-backend' }, h('h2', { id: 'side-backend' }, 'Backend'), h('p', { class: 'quiet' }, 'One count for all callers together.'), parts.backend),
			h('section', { 'aria-labelledby': 'side-consumer' }, h('h2', { id: 'side-consumer' }, 'Per consumer'), h('p', { class: 'quiet' }, 'One count for each consumer.'), parts.consumer)));
}

export async function refresh(signal) {
	if (editing) return null; // what is being typed is not to be drawn over
	const began = performance.now();
	const [got, usage] = await Promise.all([api.limits(), read(null, signal)]);
	if (signal.aborted || editing || !usage) return null;
	const remote = got.remote?.outage ? ` It is away since ${got.remote.since}: ${got.remote.error ?? ''}` : '';
	parts.note.textContent = `Counts are in the ${got.store} store.${remote}`;
	for (const [side, shared] of [['backend', true], ['consumer', false]]) {
		const of = got.limits.filter((l) => l.shared === shared);
		show(parts[side], of.length ? of.map((l) => card(l, usage)) : h('p', { class: 'quiet' }, 'None.'));
	}
	return Math.max(5000, 10 * (performance.now() - began));
}

function card(l, usage) {
	const box = h('div', { class: 'card' });
	const edit = h('button', { type: 'button', 'data-key': 'edit' + l.instance, 'aria-label': 'Edit ' + l.instance, click: () => start(box, l) }, 'Edit');
	show(box,
		h('div', { class: 'head' }, h('h3', {}, l.instance), edit),
		h('p', { class: 'quiet' }, [l.directive, l.mode, l.key?.join(' ')].filter(Boolean).join(' · ')),
		h('table', { class: 'rules' },
			h('caption', { class: 'unseen' }, 'Limits of ' + l.instance),
			h('tbody', {}, l.rules.map((r) => line(l, r, usage)))));
	return box;
}

function line(l, r, usage) {
	const about = [r.group && `group ${r.group}`, r.per_model && 'each model', r.shadow && 'shadow'].filter(Boolean).join(', ');
	return h('tr', {},
		h('td', { class: 'number' }, text(r.limit, r.unit)),
		h('th', { scope: 'row' }, r.rule.replace(/^usd /, ''), about && h('span', { class: 'instance' }, about)),
		h('td', { class: 'used' }, l.shared ? useOfShared(l, r, usage) : useOfConsumers(l, r, usage)));
}

// useOfShared has a part for each counter: one, or with per_model one for each model that
// has been met.
function useOfShared(l, r, usage) {
	return usage.shared.filter((u) => u.instance === l.instance && u.rule === r.rule).flatMap((row) => {
		// what acts may be another limit than the config's
		const own = String(row.limit) === String(r.limit) ? null : { configured: r.limit };
		const used = share(row);
		const label = `${rule(row)} of ${l.instance}`;
		return [row.model && h('span', { class: 'instance' }, h('strong', {}, row.model)),
			bar(used, label), h('span', { class: 'percent' }, `${Math.round(used * 100)} %`),
			h('span', { class: 'instance' }, `${text(row.used, row.unit)} used${row.resets_at ? `, resets in ${until(row.resets_at)}` : ''}`),
			own && h('span', { class: 'instance' }, h('strong', {}, text(row.limit, row.unit)), ' on all replicas'),
			h('button', { type: 'button', class: 'plain', 'data-key': 'raise ' + label, 'aria-label': 'Raise limit: ' + label, click: () => raise(row, own) }, 'Raise limit')];
	});
}

function useOfConsumers(l, r, usage) {
	let near = 0, full = 0, all = 0;
	// Members of a group are told by their limit.
	const several = l.rules.filter((other) => other.rule === r.rule).length > 1;
	for (const c of usage.consumers.values()) {
		const rows = c.rows.filter((u) => u.instance === l.instance && u.rule === r.rule && (!several || String(u.limit) === String(r.limit)));
		if (!rows.length) continue;
		const most = Math.max(...rows.map((u) => u.share)); // of its models
		all++;
		if (most >= 1) full++;
		else if (most >= 0.8) near++;
	}
	if (!full && !near) return h('span', { class: 'instance' }, all ? `${all.toLocaleString('en-US')} below 80 %` : '');
	return [full > 0 && h('span', { class: 'state full' }, `${full.toLocaleString('en-US')} used up`), near > 0 && h('span', { class: 'state near' }, `${near.toLocaleString('en-US')} above 80 %`)];
}

async function start(box, l) {
	editing = l.instance;
	try {
		await form(box, l);
		editing = null;
		say(`The limits of ${l.instance} are changed on this replica. What has been counted stays.`);
	} catch (e) {
		editing = null;
		if (e) say(e.message);
	}
	document.dispatchEvent(new Event('changed'));
}
