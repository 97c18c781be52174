// A chart of bars over time, drawn by uPlot, with the same numbers as text.
/* global uPlot */
import { h } from './dom.js';
import { text, clock } from './amount.js';

const height = 180;

// chart returns a box, and a function that draws bars into it: `{at, <member>}`, null
// where nothing is known, so and so many milliseconds long.
export function chart(title, member) {
	const format = (v) => (member === 'usd' ? text(v, 'usd') : v.toLocaleString('en-US', { maximumFractionDigits: 0 }));
	const canvas = h('div', { class: 'plot', role: 'img' });
	// Ticks have as many decimals as tell them apart; nobody is refused by halves.
	const label = (t, step) => (member === 'usd' ? '$' + t.toFixed(Math.max(2, Math.ceil(-Math.log10(step)))) : Number.isInteger(t) ? format(t) : '');
	const unit = h('span', { class: 'quiet' });
	const box = h('figure', { class: `card chart ${member}` }, h('figcaption', {}, h('strong', {}, title), ' ', unit), canvas);
	let plot, data = [[], []], length = 0;

	// A canvas wants colours, not names of them that depend on the scheme.
	const style = (name) => {
		const probe = h('span', { hidden: true });
		probe.style.color = `var(${name})`;
		box.append(probe);
		const { color } = getComputedStyle(probe);
		probe.remove();
		return color;
	};
	function make() {
		const axis = { stroke: style('--quiet'), grid: { stroke: style('--line'), width: 1 }, ticks: { show: false }, font: '12px system-ui, sans-serif' };
		plot?.destroy();
		plot = new uPlot({
			width: canvas.clientWidth, height, padding: [8, 8, 0, 0],
			legend: { show: false }, cursor: { show: false },
			scales: { y: { range: (_, __, max) => [0, max > 0 ? max * 1.1 : 1] } },
			series: [{}, { stroke: style('--plot'), fill: style('--plot'), width: 0, points: { show: false }, paths: uPlot.paths.bars({ size: [0.8, 40], align: 1 }) }],
			axes: [
				{ ...axis, size: 28, values: (_, ticks) => ticks.map((t) => clock(t * 1000)), incrs: [60, 120, 300, 600, 900, 1800, 3600, 7200, 14400], space: 60 },
				{ ...axis, size: 72, values: (_, ticks, __, ___, step) => ticks.map((t) => label(t, step)), space: 32 },
			],
		}, data, canvas);
	}
	// It is made anew when its place or the colours change.
	new ResizeObserver(() => { if (canvas.clientWidth && plot?.width !== canvas.clientWidth) make(); }).observe(canvas);
	const dark = matchMedia('(prefers-color-scheme: dark)');
	const recolour = () => (box.isConnected ? make() : dark.removeEventListener('change', recolour));
	dark.addEventListener('change', recolour);

	function draw(all, every) {
		length = every;
		data = [all.map((b) => b.at / 1000), all.map((b) => b[member])];
		plot?.setData(data);
		unit.textContent = `per ${length < 60000 ? `${length / 1000} s` : `${length / 60000} min`}`;
		const known = all.filter((b) => b[member] !== null);
		const sum = known.reduce((n, b) => n + b[member], 0);
		const most = known.reduce((m, b) => (b[member] > m[member] ? b : m), known[0]);
		canvas.setAttribute('aria-label', known.length
			? `${title}: ${format(sum)} in all, at most ${format(most[member])} ${unit.textContent}, at ${clock(most.at)}`
			: `${title}: nothing is known yet`);
	}
	return { box, draw };
}
