// What the page asks for. All goes to the server that this page is of, which knows the
// admin endpoint.

let csrf = '';

// Refusal is an answer of the admin endpoint that is an error.
export class Refusal extends Error {
	constructor(status, message) {
		super(message);
		this.status = status;
	}
}

// call sends a request and returns the answer, and what leads to the next page of it.
async function call(method, path, body) {
	let resp;
	try {
		resp = await fetch('api/' + path, {
			method,
			headers: { 'X-Csrf-Token': csrf, ...(body === undefined ? {} : { 'Content-Type': 'application/json' }) },
			body: body === undefined ? undefined : JSON.stringify(body),
		});
	} catch {
		throw new Refusal(0, 'caddy llm-ui does not answer. Has it ended? Start it again and open the link that it prints.');
	}
	if (!resp.ok) throw new Refusal(resp.status, await resp.text());
	const status = Number(resp.headers.get('X-Admin-Status') ?? 200);
	const text = await resp.text();
	const data = text ? JSON.parse(text) : null;
	if (status >= 400) throw new Refusal(status, data?.error ?? `The admin endpoint answers ${status}.`);
	const next = /<([^>]*)>;\s*rel="next"/.exec(resp.headers.get('Link') ?? '');
	return { data, after: next ? new URL(next[1], location.href).searchParams.get('after') : null };
}

function query(parameters) {
	const q = new URLSearchParams(Object.entries(parameters).filter(([, v]) => v !== null && v !== undefined && v !== ''));
	return q.size ? '?' + q : '';
}

const part = encodeURIComponent;

export async function session() {
	const { data } = await call('GET', 'session');
	csrf = data.csrf;
	return data;
}

// usagePage is some rows of the use, and where the next begin.
export const usagePage = (parameters) => call('GET', 'llm/usage' + query(parameters));

// usageOf are all rows of a consumer.
export async function usageOf(consumer) {
	const rows = [];
	for (let after = null; ;) {
		const page = await usagePage({ consumer, after });
		rows.push(...page.data);
		after = page.after;
		if (!after) return rows;
	}
}

export const limits = async () => (await call('GET', 'llm/limits')).data;
export const history = async (after) => (await call('GET', 'history' + query({ after }))).data;

export const overrides = async (consumer) => (await call('GET', 'llm/overrides' + query({ consumer }))).data;
export const putOverride = (o) => call('PUT', 'llm/overrides', o);
export const deleteOverride = (o) => call('DELETE', 'llm/overrides', o);
export const adjust = (a) => call('POST', 'llm/usage/adjust', a);

export const keysPage = (after) => call('GET', 'llm/keys' + query({ after }));
export const newKey = async (k) => (await call('POST', 'llm/keys', k)).data;
export const rotateKey = async (id, grace, end) => (await call('POST', `llm/keys/${part(id)}/rotate`, { grace, ...(end && { end }) })).data;
export const enableKey = (id, enabled) => call('PATCH', `llm/keys/${part(id)}`, { enabled });
export const revokeKey = (id) => call('DELETE', `llm/keys/${part(id)}`);

export const config = async (name) => (await call('GET', 'config/' + part(name))).data;
export const editConfig = (name, edit) => call('PATCH', 'config/' + part(name), edit);
