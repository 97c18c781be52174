// Whatever consumers and instances are called, it is shown as text.
export default async ({ url, args: rows, open, shot, equal, ok }) => {
	const page = await open();
	await page.goto(url);
	const links = page.locator('.consumers tbody a');
	await links.nth(rows.length - 1).waitFor();
	equal((await links.allTextContents()).sort(), rows.map((r) => r.consumer.replace('\0', '\u0000')).sort(), 'names');
	for (const { consumer } of rows) {
		await page.goto(page.url().replace(/#.*/, '') + '#/consumers');
		await links.filter({ hasText: consumer.replace('\0', '') }).first().click();
		await page.locator('.one tbody tr').first().waitFor();
		equal(await page.locator('h1').textContent(), consumer, 'heading');
		ok((await page.locator('.one tbody').innerText()).includes('tokens per hour (<i>*)'), 'no rule');
	}
	equal(await page.locator('main img, main script, main b, main i').count(), 0, 'elements made of names');
	await shot(page, 'names');
};
