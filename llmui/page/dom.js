// Elements are made here, and nowhere from markup: what callers are named is text.

// h makes an element. Properties that are functions are listeners, named by their
// event; null and false set nothing.
export function h(tag, properties = {}, ...children) {
	const e = document.createElement(tag);
	for (const [name, value] of Object.entries(properties)) {
		if (value === null || value === undefined || value === false) continue;
		if (typeof value === 'function') e.addEventListener(name, value);
		else if (name === 'value') e.value = value;
		else e.setAttribute(name, value === true ? '' : value);
	}
	e.append(...children.flat().filter((c) => c !== null && c !== undefined && c !== false));
	return e;
}

// show replaces what is in an element. The focus stays on what has the same data-key.
export function show(element, ...children) {
	const key = element.contains(document.activeElement) && document.activeElement.dataset.key;
	element.replaceChildren(...children.flat().filter(Boolean));
	if (!key) return;
	for (const e of element.querySelectorAll('[data-key]')) {
		if (e.dataset.key === key) e.focus({ preventScroll: true });
	}
}

let saying;

// say tells what has been done, for a while.
export function say(text) {
	const e = document.getElementById('said');
	clearTimeout(saying);
	e.hidden = false;
	e.textContent = text;
	saying = setTimeout(() => { e.hidden = true; }, 8000);
}

// problem tells what is wrong until it is not; null takes it back.
export function problem(text) {
	const e = document.getElementById('problem');
	if (e.textContent === (text ?? '')) return;
	e.hidden = !text;
	e.textContent = text ?? '';
}

let labels = 0;

// field is a labelled input, select or textarea, with a hint under it.
export function field(label, input, hint) {
	input.id = `field-${++labels}`;
	const note = hint && h('p', { class: 'hint', id: input.id + '-hint' }, hint);
	if (note) input.setAttribute('aria-describedby', note.id);
	return h('div', { class: 'field' }, h('label', { for: input.id }, label), input, note);
}

// bar draws how much of something is used, as a share of 1.
export function bar(share, label) {
	const percent = Math.round(share * 100);
	const fill = h('span', {});
	fill.style.width = Math.min(100, Math.max(0, share * 100)) + '%';
	const level = share >= 1 ? 'full' : share >= 0.8 ? 'near' : 'well';
	return h('div', {
		class: `meter ${level}`, role: 'meter', 'aria-label': label,
		'aria-valuemin': 0, 'aria-valuemax': 100, 'aria-valuenow': Math.min(100, percent), 'aria-valuetext': `${percent} %`,
	}, fill);
}

// ask opens a dialog with a form. On submit it calls `act`, and closes when that is done;
// what goes wrong stands in the dialog. It returns the dialog.
export function ask({ title, body, yes, danger, extra, act }) {
	const wrong = h('p', { class: 'wrong', role: 'alert', hidden: true });
	const submit = yes && h('button', { type: 'submit', class: danger ? 'danger' : 'primary' }, yes);
	const close = h('button', { type: 'button', click: () => dialog.close() }, yes ? 'Cancel' : 'Close');
	const heading = h('h2', { id: `dialog-${++labels}` }, title);
	const attempt = async (what) => {
		wrong.hidden = true;
		for (const b of form.querySelectorAll('button')) b.disabled = true;
		try {
			await what();
			dialog.close();
		} catch (e) {
			wrong.textContent = e.message;
			wrong.hidden = false;
		} finally {
			for (const b of form.querySelectorAll('button')) b.disabled = false;
		}
	};
	const form = h('form', {
		submit: (e) => {
			e.preventDefault();
			attempt(act);
		},
	}, heading, body, wrong, h('div', { class: 'buttons' },
		submit,
		extra?.map(({ text, act: other }) => h('button', { type: 'button', click: () => attempt(other) }, text)),
		close));
	const dialog = h('dialog', { 'aria-labelledby': heading.id, close: () => dialog.remove() }, form);
	document.body.append(dialog);
	dialog.showModal();
	return dialog;
}
