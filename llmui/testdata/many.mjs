// Ten thousand consumers: they are read page by page, and searching, sorting and turning
// pages takes no time that a person notices. What is measured is how long the page is busy.
export default async ({ url, args, open, shot, equal }) => {
	const page = await open();
	await page.goto(url);
	await page.locator('.consumers tbody a').first().waitFor();
	await page.getByText(`${args.consumers.toLocaleString('en-US')} consumers`, { exact: true }).waitFor();
	const took = {};
	const timed = async (what, locator, value) => {
		took[what] = await locator.evaluate((e, v) => {
			const began = performance.now();
			if (e.tagName === 'BUTTON') e.click();
			else {
				e.value = v;
				e.dispatchEvent(new Event(e.tagName === 'SELECT' ? 'change' : 'input'));
			}
			document.body.getBoundingClientRect(); // so that it is laid out
			return performance.now() - began;
		}, value);
	};
	const names = () => page.locator('.consumers tbody a').allTextContents();
	const search = page.getByLabel('Search consumers');
	await timed('search', search, 'TEAM-99');
	equal((await names()).every((n) => n.startsWith('team-99')), true, 'what is found');
	equal(await page.locator('.count').textContent(), '111 consumers of 10,000', 'count');
	await search.fill('');
	await timed('sort', page.getByRole('button', { name: 'Consumer', exact: true }));
	equal((await names())[0], 'team-0', 'first by name');
	await timed('page', page.getByRole('button', { name: 'Next' }));
	equal((await names()).length, 50, 'rows');
	equal((await names())[0], 'team-50', 'first of the second page');
	const rule = await page.locator('option', { hasText: 'budget: usd per day' }).getAttribute('value');
	await timed('rule', page.getByLabel('Limit', { exact: true }), rule);
	equal(await page.locator('td.rule .instance').first().textContent(), 'budget', 'instance');
	await shot(page, 'many');
	return took;
};
