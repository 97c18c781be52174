// Ten thousand consumers: the first are shown before the last are read, and searching,
// sorting and turning pages takes no time that a person notices.
export default async ({ url, args, open, shot, equal, ok, until }) => {
	const page = await open();
	await page.goto(url);
	await page.locator('.consumers tbody a').first().waitFor();
	await page.getByText(`${args.consumers.toLocaleString('en-US')} consumers`, { exact: true }).waitFor();
	const took = {};
	const timed = async (what, act) => {
		const began = await page.evaluate(() => { globalThis.began = performance.now(); return globalThis.began; });
		await act();
		took[what] = await page.evaluate((b) => new Promise((done) => requestAnimationFrame(() => setTimeout(() => done(performance.now() - b)))), began);
	};
	const names = () => page.locator('.consumers tbody a').allTextContents();
	await timed('search', () => page.getByLabel('Search consumers').fill('team-99'));
	await until('found', async () => (await names()).every((n) => n.startsWith('team-99')));
	equal((await page.locator('.count').textContent()).split(' ')[0], '111', 'found');
	await page.getByLabel('Search consumers').fill('');
	await timed('sort', () => page.getByRole('button', { name: 'Consumer', exact: true }).click());
	equal((await names())[0], 'team-0', 'first by name');
	await timed('page', () => page.getByRole('button', { name: 'Next' }).click());
	equal((await names())[0], 'team-50', 'first of the second page');
	await timed('rule', () => page.getByLabel('Limit', { exact: true }).selectOption({ label: 'budget: usd per day' }));
	await shot(page, 'many');
	ok(await page.locator('.consumers tbody tr').count() === 50, 'rows');
	return took;
};
