// The use of everybody, read page by page.
import * as api from './api.js';
import { share, rule } from './amount.js';

// Usage is what has been read. Consumers are by name, each with its rows; shared rows are
// of counters that all callers have in common.
export class Usage {
	consumers = new Map();
	shared = [];
	rules = new Map(); // instance and rule of rows that consumers have, by their key

	add(rows) {
		for (const row of rows) {
			row.share = share(row);
			if (row.consumer === '') {
				this.shared.push(row);
				continue;
			}
			const key = JSON.stringify([row.instance, rule(row)]);
			if (!this.rules.has(key)) this.rules.set(key, `${row.instance}: ${rule(row)}`);
			row.key = key;
			let c = this.consumers.get(row.consumer);
			if (!c) this.consumers.set(row.consumer, c = { name: row.consumer, lower: row.consumer.toLowerCase(), rows: [], tightest: row });
			c.rows.push(row);
			if (row.share > c.tightest.share) c.tightest = row;
		}
	}
}

// read reads all pages, and calls `progress` with what there is after each. `signal` ends
// it; it then returns null.
export async function read(progress, signal) {
	const u = new Usage();
	for (let after = null; ;) {
		const page = await api.usagePage({ after });
		if (signal?.aborted) return null;
		u.add(page.data);
		after = page.after;
		if (!after) return u;
		progress?.(u);
	}
}
