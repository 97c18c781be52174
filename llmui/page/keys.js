// API keys that are kept in the store.
import * as api from './api.js';
import { h, show, ask, field, say } from './dom.js';
import { Pager, counted } from './pager.js';

export const title = 'Keys';

let parts, keys;
let wanted = ''; // what is searched for
const pager = new Pager(draw);

export function open(main) {
	keys = null;
	const search = h('input', {
		type: 'search', value: wanted, placeholder: 'Key or application', 'aria-label': 'Search keys', autocomplete: 'off', spellcheck: 'false',
		input: () => {
			wanted = search.value.trim().toLowerCase();
			pager.page = 0;
			draw();
		},
	});
	parts = {
		table: h('div', {}), count: h('p', { class: 'count', role: 'status' }),
		tools: h('div', { class: 'tools', hidden: true }, h('button', { type: 'button', class: 'primary', click: issue }, 'New key'), search),
	};
	parts.tools.append(parts.count);
	show(main, parts.tools, parts.table, pager.open());
}

export async function refresh(signal) {
	const got = [];
	const began = performance.now();
	try {
		for (let after = null; ;) {
			const page = await api.keysPage(after);
			got.push(...page.data);
			after = page.after;
			if (!after) break;
		}
	} catch (e) {
		if (e.status !== 404 && e.status !== 409) throw e;
		if (!signal.aborted) missing(e);
		return null;
	}
	if (signal.aborted) return null;
	keys = got;
	draw();
	return Math.max(5000, 10 * (performance.now() - began));
}

// missing tells what to configure where keys are not kept in the store.
function missing(e) {
	parts.tools.hidden = true;
	show(parts.table, h('div', { class: 'card' },
		h('p', {}, 'This gateway keeps no keys in its store, so none can be issued here. Its keys stand in its config, or in a file.'),
		h('p', {}, 'To issue and revoke keys at run time, add a line to api_key_auth:'),
		h('pre', {}, 'api_key_auth {\n\tkeys_store\n}'),
		h('p', { class: 'quiet' }, `The admin endpoint says: ${e.message}`)));
}

function draw() {
	if (!keys) return;
	parts.tools.hidden = false;
	const found = wanted ? keys.filter((k) => k.id.toLowerCase().includes(wanted) || k.application.toLowerCase().includes(wanted)) : keys;
	const count = counted(found.length, keys.length, 'key');
	if (parts.count.textContent !== count) parts.count.textContent = count;
	const shown = pager.of(found);
	show(parts.table, shown.length ? h('table', { class: 'list keys' },
		h('caption', { class: 'unseen' }, 'Keys'),
		h('thead', {}, h('tr', {}, ['Key', 'Application', 'Group', 'Models', 'State'].map((t) => h('th', { scope: 'col' }, t)), h('td', {}))),
		h('tbody', {}, shown.map(line))) : h('p', { class: 'quiet' }, wanted ? 'None matches.' : 'There are no keys in the store yet.'));
}

function line(k) {
	const act = (what, how, danger) => h('button', { type: 'button', class: danger && 'danger', 'data-key': what + k.id, 'aria-label': `${what} ${k.id}`, click: () => how(k) }, what);
	return h('tr', {},
		h('th', { scope: 'row' }, k.id),
		h('td', { 'data-label': 'Application' }, k.application || h('span', { class: 'quiet' }, 'none')),
		h('td', { 'data-label': 'Group' }, k.group || h('span', { class: 'quiet' }, '–')),
		h('td', { 'data-label': 'Models' }, k.models?.join(' ') ?? h('span', { class: 'quiet' }, 'all')),
		h('td', { 'data-label': 'State' }, state(k)),
		h('td', { class: 'actions' }, act('Rotate', rotate), act(k.disabled ? 'Enable' : 'Disable', enable), act('Revoke', revoke, true)));
}

const day = (instant) => instant.replace('T00:00:00Z', '').replace(/:\d\d(\.\d+)?Z$/, ' UTC').replace('T', ' ');

function state(k) {
	const all = [];
	if (k.disabled) all.push('disabled');
	if (k.expires) all.push((Date.parse(k.expires) <= Date.now() ? 'expired ' : 'until ') + day(k.expires));
	if (k.previous_until) all.push(`old secret until ${day(k.previous_until)}`);
	return all.join(', ') || 'active';
}

const changed = () => document.dispatchEvent(new Event('changed'));

function issue() {
	const text = (more) => h('input', { autocomplete: 'off', spellcheck: 'false', ...more });
	const application = text(), group = text(), models = text({ placeholder: 'gpt-* claude-*' }), expires = h('input', { type: 'date' });
	const anew = h('input', { type: 'checkbox' });
	const lost = h('div', { class: 'check', hidden: true }, field('Begin anew with this key', anew,
		'The store has lost its keys. Those that gateways remember work on for a while, and again for good if the store is restored. A key that is issued now ends them all at once, on all replicas.'));
	ask({
		title: 'New key',
		body: [
			field('Application', application, 'Whose use is counted. Keys of one application count together.'),
			field('Group', group, 'May be empty.'),
			field('Models', models, 'Names or globs that the key may use, with spaces between. Empty for all.'),
			field('Expires', expires, 'At 00:00 UTC of that day. Empty for never.'),
			lost,
		],
		yes: 'Issue key',
		act: async () => {
			const globs = models.value.split(/[\s,]+/).filter(Boolean);
			const k = await api.newKey({
				...(application.value.trim() && { application: application.value.trim() }),
				...(group.value.trim() && { group: group.value.trim() }),
				...(globs.length && { models: globs }),
				...(expires.value && { expires: expires.value }),
				...(anew.checked && { anew: true }),
			}).catch((e) => {
				lost.hidden = !(e.status === 503 && e.message.includes('"anew"'));
				throw lost.hidden ? e : new Error('No key is issued: the store has lost all keys. Restore it, or begin anew.');
			});
			changed();
			tell('The new key', k);
		},
	});
	application.focus();
}

// rotate gives a key another secret. It has two at most, so where two work already it is
// asked which of them ends.
function rotate(k) {
	const grace = h('select', {}, [['0s', 'not at all: it ends now'], ['1h', 'for an hour'], ['24h', 'for a day'], ['168h', 'for a week']]
		.map(([value, label]) => h('option', { value, selected: value === '24h' }, label)));
	const end = h('select', {}, h('option', { value: 'previous' }, 'the older one'), h('option', { value: 'current' }, 'the newer one'));
	const why = h('p', {});
	const two = h('div', {}, why, field('The secret that ends now', end, 'The newer one only if nobody got it, as when the answer to the last rotation was lost.'));
	const offer = () => {
		two.hidden = !k.previous_until || grace.value === '0s'; // then all end
		why.textContent = two.hidden ? '' : `Two secrets work already, the older one until ${day(k.previous_until)}. A key has two at most, the new one included.`;
	};
	grace.addEventListener('change', offer);
	offer();
	ask({
		title: 'Rotate ' + k.id,
		body: [
			h('p', {}, 'The key gets a new secret. What it has used stays counted.'),
			field('The old secret works on', grace),
			two,
		],
		yes: 'Rotate',
		act: async () => {
			const got = await api.rotateKey(k.id, grace.value, two.hidden ? null : end.value).catch(async (e) => {
				if (e.status !== 409) throw e;
				await refresh(new AbortController().signal);
				const now = keys.find((other) => other.id === k.id);
				if (!now?.previous_until || k.previous_until === now.previous_until) throw e;
				k = now;
				offer();
				throw new Error('Somebody else has just rotated this key: nothing is changed. Choose which secret ends.');
			});
			changed();
			tell('The new secret of ' + k.id, got);
		},
	});
}

// enable has a key that is disabled work again, and one that is not stop.
function enable(k) {
	const what = k.disabled ? 'Enable' : 'Disable';
	ask({
		title: `${what} ${k.id}`,
		body: h('p', {}, 'Its calls', k.application ? [' for ', h('strong', {}, k.application)] : '',
			k.disabled ? ' are admitted again within a second, on all replicas.' : ' are refused within a second, on all replicas, until it is enabled again.'),
		yes: what,
		act: async () => {
			await api.enableKey(k.id, k.disabled);
			say(`${k.id} is ${k.disabled ? 'enabled' : 'disabled'}.`);
			changed();
		},
	});
}

function revoke(k) {
	ask({
		title: 'Revoke ' + k.id,
		body: h('p', {}, 'Its calls', k.application ? [' for ', h('strong', {}, k.application)] : '', ' are refused within a second, on all replicas. This cannot be taken back.'),
		yes: 'Revoke',
		danger: true,
		act: async () => {
			await api.revokeKey(k.id);
			say(`${k.id} is revoked.`);
			changed();
		},
	});
}

// tell shows a secret, once.
function tell(heading, { key }) {
	const secret = h('input', { readonly: true, value: key, class: 'secret', spellcheck: 'false', 'aria-label': 'Key', focus: () => secret.select() });
	const copy = h('button', {
		type: 'button', class: 'primary',
		click: async () => {
			secret.select();
			try {
				await navigator.clipboard.writeText(key);
			} catch {
				document.execCommand('copy'); // where the browser keeps its clipboard to itself
			}
			copy.textContent = 'Copied';
			say('The key is copied.');
		},
	}, 'Copy');
	const dialog = ask({
		title: heading,
		body: [h('p', {}, 'Copy it now: it is shown this once and kept nowhere.'), h('div', { class: 'copy' }, secret, copy)],
	});
	dialog.addEventListener('close', () => { secret.value = ''; });
	copy.focus();
}
