// Long lists are shown a page at a time.
import { h, show } from './dom.js';

const perPage = 50;
const n = (count) => count.toLocaleString('en-US');

// Pager remembers which page of a list is shown. `turned` is called when that changes.
export class Pager {
	page = 0;

	constructor(turned) {
		this.turned = turned;
	}

	// open makes the element that the buttons are in.
	open() {
		this.element = h('nav', { class: 'pager', 'aria-label': 'Pages' });
		return this.element;
	}

	// of returns what is on the page of a list, and draws the buttons.
	of(list) {
		const pages = Math.max(1, Math.ceil(list.length / perPage));
		this.page = Math.min(this.page, pages - 1);
		const start = this.page * perPage;
		const to = (page, label, allowed) => h('button', {
			type: 'button', 'data-key': label, disabled: !allowed,
			click: () => {
				this.page = page;
				this.turned();
			},
		}, label);
		show(this.element, pages > 1 && [
			to(this.page - 1, 'Previous', this.page > 0),
			h('span', {}, `${n(start + 1)}–${n(Math.min(list.length, start + perPage))} of ${n(list.length)}`),
			to(this.page + 1, 'Next', this.page < pages - 1),
		]);
		return list.slice(start, start + perPage);
	}
}

// counted is how many of a thing there are, and of how many: 3 keys of 1,200.
export function counted(count, all, one) {
	return `${n(count)} ${count === 1 ? one : one + 's'}${count === all ? '' : ` of ${n(all)}`}`;
}
