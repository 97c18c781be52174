// Amounts: whole numbers of a unit, and dollars as decimal strings.

const whole = new Intl.NumberFormat('en-US', { maximumFractionDigits: 3 });
const dollars = new Intl.NumberFormat('en-US', { style: 'currency', currency: 'USD' });
const cents = new Intl.NumberFormat('en-US', { style: 'currency', currency: 'USD', maximumFractionDigits: 4 });
const scales = { '': 0, k: 3, M: 6, G: 9, T: 12 };

// parse reads an amount as a Caddyfile has it, such as 10k, 2.5M, 10_000 or $0.10. It
// returns the decimal digits of it, and throws what is wrong. A comma stands before three
// digits: one that may be meant as a decimal point is refused.
export function parse(text, unit) {
	const usd = unit === 'usd';
	const example = usd ? '$0.10 or 25' : '10000, 10k or 2.5M';
	const m = /^(\$?)(\d{1,3}(?:,\d{3})+|\d+(?:_\d+)*)(?:\.(\d+))?([kMGT]?)$/.exec(text.trim());
	if (!m || (m[1] && !usd)) throw new Error(`Write an amount such as ${example}.`);
	const [, , integer, fraction = '', scale] = m;
	const shift = scales[scale];
	const digits = (integer.replace(/[_,]/g, '') + fraction.slice(0, shift).padEnd(shift, '0')).replace(/^0+(?=\d)/, '');
	const rest = fraction.slice(shift).replace(/0+$/, '');
	if (rest && !usd) throw new Error(`${unit} are counted whole: write an amount such as ${example}.`);
	if (!Number.isSafeInteger(Number(digits))) throw new Error('That is more than can be counted.');
	return digits + (rest ? '.' + rest : '');
}

// json is a parsed amount as the admin endpoint wants it: dollars as a string, since
// they are exact, and anything else as a number.
export const json = (digits, unit) => (unit === 'usd' ? digits : Number(digits));

// text is an amount of the admin endpoint for people: 1,234 or $0.10. Small sums have the
// decimals that tell them from nothing.
export function text(amount, unit) {
	if (unit !== 'usd') return whole.format(amount);
	const n = Number(amount);
	if (n === 0 || n >= 1) return dollars.format(n);
	return n >= 0.01 ? cents.format(n) : '$' + n.toFixed(12).replace(/0+$/, '');
}

// share is how much of a row's limit is used, 1 for all of it.
export function share(row) {
	const limit = Number(row.limit);
	return limit > 0 ? Number(row.used) / limit : 1;
}

// twice is what a limit might be raised to, as text for an input.
export function twice(amount, unit) {
	const n = Number(amount) * 2;
	return unit === 'usd' ? '$' + (Number.isInteger(n) ? n : n.toFixed(12).replace(/0+$/, '')) : String(n);
}

// until is how long it is to an instant: 12 min, 3 h, 5 d.
export function until(instant, now = Date.now()) {
	if (!instant) return '';
	const s = Math.round((Date.parse(instant) - now) / 1000);
	if (s <= 0) return 'now';
	if (s < 90) return `${s} s`;
	if (s < 90 * 60) return `${Math.round(s / 60)} min`;
	if (s < 36 * 3600) return `${Math.round(s / 3600)} h`;
	return `${Math.round(s / 86400)} d`;
}

// rule is a rule of a row in words.
export const rule = (row) => row.rule + (row.model ? ` · ${row.model}` : '');

// clock is the time of day of an instant: 17:05.
export const clock = (at) => new Date(at).toLocaleTimeString('en-GB', { hour: '2-digit', minute: '2-digit' });
