// The form in which the limits of an instance are edited.
import * as api from './api.js';
import { h, show, field } from './dom.js';

// Units and windows that a new limit may have; others can be written in the config.
const units = ['tokens', 'requests', 'input_tokens', 'output_tokens', 'uncached_tokens', 'images', 'audio_seconds', 'video_seconds'];
const windows = ['minute', 'hour', 'day', 'week', 'month'];

// form shows the form in a box. It resolves when the edit is made and rejects with null
// when it is given up, or with what is wrong if there is nothing to edit.
export async function form(box, { instance, directive }) {
	const config = await api.config(instance);
	return new Promise((resolve, reject) => draw(box, instance, directive, config, resolve, reject));
}

// words are what a rule counts, as the config has it.
function words(r) {
	return [
		r.unit === 'concurrent' ? 'concurrent' : `${r.unit ?? ''} per ${r.rolling ? 'rolling ' : ''}${r.window}`,
		r.models && `(${r.models.join(' ')})`, r.group && `group ${r.group}`, r.shadow && 'shadow',
	].filter(Boolean).join(' ').trim();
}

function draw(box, instance, directive, config, resolve, reject) {
	const wrong = h('p', { class: 'wrong', role: 'alert', hidden: true });
	const input = (value, more) => h('input', { value: value ?? '', autocomplete: 'off', spellcheck: 'false', required: true, ...more });
	const rules = config.rules.map((r) => ({
		...r, removable: /^limits\/\d+$/.test(r.path),
		amountInput: input(r.amount), burstInput: r.burst ? input(r.burst) : null,
		gone: h('input', { type: 'checkbox' }),
	}));
	const added = [];
	const list = h('div', {}, rules.map((r) => h('fieldset', {},
		h('legend', {}, words(r)),
		field('Amount', r.amountInput),
		r.burstInput && field('Burst', r.burstInput),
		r.removable && h('div', { class: 'check' }, field('Remove', r.gone)))));
	// Caddy says where in the config it was; here there is one instance.
	const short = (text) => text.slice(Math.max(0, text.lastIndexOf(`${directive} ${instance}: `)));
	const add = () => {
		const a = {
			amount: input(directive === 'cost_limit' ? '$' : ''),
			unit: directive === 'cost_limit' ? null : h('select', {}, units.map((u) => h('option', {}, u))),
			window: h('select', {}, windows.map((w) => h('option', { selected: w === 'day' }, w))),
		};
		added.push(a);
		list.append(h('fieldset', {}, h('legend', {}, 'New limit'), field('Amount', a.amount), a.unit && field('Unit', a.unit), field('Per', a.window)));
		a.amount.focus();
	};
	const save = async () => {
		const set = {};
		for (const r of rules) {
			if (r.gone.checked) continue;
			if (r.amountInput.value !== r.amount || (r.burstInput && r.burstInput.value !== r.burst)) {
				set[r.path] = { amount: r.amountInput.value.trim(), burst: r.burstInput?.value.trim() ?? '' };
			}
		}
		await api.editConfig(instance, {
			etag: config.etag, set,
			remove: rules.filter((r) => r.gone.checked).map((r) => r.path),
			add: added.map((a) => ({ amount: a.amount.value.trim(), unit: a.unit?.value, window: a.window.value })),
		});
	};
	const f = h('form', {
		'aria-label': 'Limits of ' + instance,
		submit: async (e) => {
			e.preventDefault();
			wrong.hidden = true;
			try {
				await save();
				resolve();
			} catch (err) {
				wrong.textContent = short(err.message);
				wrong.hidden = false;
			}
		},
		keydown: (e) => { if (e.key === 'Escape') reject(null); },
	},
	h('h3', {}, instance), list, wrong,
	h('div', { class: 'buttons' },
		h('button', { type: 'submit', class: 'primary' }, 'Save on this replica'),
		h('button', { type: 'button', click: add }, 'Add limit'),
		h('button', { type: 'button', click: () => reject(null) }, 'Cancel')));
	show(box, f);
	f.querySelector('input')?.select();
}
