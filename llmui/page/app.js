// The page's frame: which view is shown, and when it is read anew.
import * as api from './api.js';
import { h, show, problem } from './dom.js';
import * as consumers from './consumers.js';
import * as consumer from './consumer.js';
import * as activity from './activity.js';
import * as keys from './keys.js';
import * as limits from './limits.js';

// A view has a title, `open(main, part)`, which draws it, and `refresh()`, which reads
// what may have changed. `refresh` returns how many milliseconds it wants to be left alone.
const views = { consumers, activity, keys, limits };
const main = document.getElementById('main');

let current = null; // the view, and a sign that it is still shown
let timer;

function route() {
	const [name = '', ...rest] = location.hash.replace(/^#\//, '').split('/');
	if (!views[name]) {
		location.replace('#/consumers');
		return;
	}
	const part = decodeURIComponent(rest.join('/'));
	const view = name === 'consumers' && rest.length ? consumer : views[name];
	const first = current === null;
	current?.control.abort();
	current = { view, control: new AbortController() };
	for (const a of document.querySelectorAll('nav a')) {
		if (a.getAttribute('href') === '#/' + name) a.setAttribute('aria-current', 'page');
		else a.removeAttribute('aria-current');
	}
	const title = h('h1', { tabindex: '-1' }, part || view.title);
	document.title = `${part || view.title} – LLM limits`;
	const body = h('div', {});
	show(main, title, body);
	if (!first) title.focus({ preventScroll: true });
	scrollTo(0, 0);
	view.open(body, part);
	tick(current);
}

// tick reads a view anew, now and every few seconds while somebody looks.
async function tick(of) {
	clearTimeout(timer);
	let rest = 5000;
	if (!document.hidden) {
		try {
			rest = await of.view.refresh(of.control.signal) ?? rest;
			if (of === current) problem(null);
		} catch (e) {
			if (!(e instanceof api.Refusal)) console.error(e); // a mistake of this page
			if (of !== current) return;
			problem(e.message + advice(e));
		}
	}
	if (of === current) timer = setTimeout(tick, rest, of);
}

// advice is what to do where the gateway has nothing that this page could show.
function advice(e) {
	if (e.status !== 404) return '';
	if (/no llm module/.test(e.message)) return ': write a token_limit or a cost_limit into a site.';
	return ': is this Caddy built with caddy-llm-limits, and is this its admin endpoint?';
}

document.addEventListener('visibilitychange', () => { if (!document.hidden && current) tick(current); });
document.addEventListener('changed', () => tick(current)); // something was done here
document.getElementById('skip').addEventListener('click', (e) => {
	e.preventDefault();
	main.focus();
});

try {
	const { admin } = await api.session();
	document.getElementById('where').textContent = admin;
	addEventListener('hashchange', route);
	route();
} catch (e) {
	show(main);
	problem(e.message);
}
