// What the scripts have in common.

// chat makes a call of 60 tokens through the gateway, and returns its status.
export async function chat({ gateway, key }) {
	const resp = await fetch(gateway + '/v1/chat/completions', {
		method: 'POST',
		headers: { 'Content-Type': 'application/json', Authorization: 'Bearer ' + key },
		body: JSON.stringify({ model: 'gpt-4o-mini', max_tokens: 40, messages: [{ role: 'user', content: 'hi' }] }),
	});
	await resp.text();
	return resp.status;
}

// countClicks counts what a person clicks on a page.
export async function countClicks(page) {
	await page.addInitScript(() => {
		globalThis.clicks = 0;
		addEventListener('click', (e) => { if (e.isTrusted) globalThis.clicks++; }, true);
	});
	return () => page.evaluate(() => globalThis.clicks);
}

// row is the row of a table that has a text.
export const row = (page, text) => page.locator('tbody tr').filter({ hasText: text });
