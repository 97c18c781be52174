// What an operator does about a counter: a limit of its own, or a correction.
import * as api from './api.js';
import { h, ask, field, say } from './dom.js';
import { parse, json, text, twice, rule } from './amount.js';

// amount is an amount of a row's rule: 1,000 tokens per hour, $5 per day.
const amount = (n, row) => `${text(n, row.unit)} ${rule(row).replace(/^usd /, '')}`;

function changed(what) {
	say(what);
	document.dispatchEvent(new Event('changed'));
}

// key tells a rule to the admin endpoint.
const key = (row) => ({ instance: row.instance, consumer: row.consumer, rule: row.rule, ...(row.model && { model: row.model }) });

// who is the consumer of a row, or all of them.
const who = (row) => row.consumer || 'All callers together';

// raise asks for a limit of a row's own. `own` is the one that it has already.
export function raise(row, own) {
	const input = h('input', { value: twice(row.limit, row.unit), inputmode: 'decimal', autocomplete: 'off', required: true });
	ask({
		title: 'Raise limit',
		body: [
			h('p', {}, h('strong', {}, who(row)), ` may use ${amount(row.limit, row)}, counted by ${row.instance}.`,
				own?.configured && ` The config says ${text(own.configured, row.unit)}.`),
			field('New limit', input, `${row.consumer ? 'Of this consumer alone, at' : 'At'} once, on all replicas. It may be lower, too.`),
		],
		yes: 'Set limit',
		extra: own && [{
			text: 'Back to the config’s',
			act: async () => {
				await api.deleteOverride(key(row));
				changed(`${who(row)}: the config’s limit of ${rule(row)} holds again.`);
			},
		}],
		act: async () => {
			const limit = parse(input.value, row.unit);
			await api.putOverride({ ...key(row), limit: json(limit, row.unit) });
			changed(`${who(row)} may now use ${amount(limit, row)}, on all replicas.`);
		},
	});
	input.select();
}

// adjust asks for an amount to grant or to charge.
export function adjust(row) {
	const input = h('input', { inputmode: 'decimal', autocomplete: 'off', required: true });
	const grant = h('select', {}, h('option', { value: '-' }, 'Grant: less is used'), h('option', { value: '' }, 'Charge: more is used'));
	ask({
		title: 'Adjust use',
		body: [
			h('p', {}, h('strong', {}, who(row)), ` has used ${text(row.used, row.unit)} of ${amount(row.limit, row)}.`),
			field('What', grant),
			field(row.unit === 'usd' ? 'Dollars' : `How many ${row.unit}`, input, `In every current window of ${row.instance} that counts ${row.unit}.`),
		],
		yes: 'Adjust',
		act: async () => {
			const amount = parse(input.value, row.unit);
			await api.adjust({ instance: row.instance, consumer: row.consumer, unit: row.unit, ...(row.model && { model: row.model }), amount: json(grant.value + amount, row.unit) });
			changed(`${text(amount, row.unit)} ${row.unit === 'usd' ? '' : row.unit + ' '}${grant.value ? 'granted' : 'charged'} to ${who(row)}.`);
		},
	});
	input.focus();
}
