// Everything is reached by Tab, done by Enter and left by Escape; the focus is always
// somewhere that can be seen, and does not get lost when the page is read anew.
import { chat } from './gateway.mjs';

export default async ({ url, args, open, equal, ok, until }) => {
	const page = await open();
	await page.goto(url);
	await page.getByRole('link', { name: 'app-a' }).waitFor();
	const focused = () => page.evaluate(() => {
		const e = document.activeElement;
		return { name: e.getAttribute('aria-label') ?? (e.labels?.[0]?.textContent || e.textContent), outline: getComputedStyle(e).outlineStyle };
	});
	const tabTo = async (pattern, key = 'Tab') => {
		for (let i = 0; i < 60; i++) {
			await page.keyboard.press(key);
			const f = await focused();
			if (pattern.test(f.name)) {
				ok(f.outline !== 'none', `the focus on ${f.name} cannot be seen`);
				return;
			}
		}
		throw new Error(`Tab does not lead to ${pattern}`);
	};

	await tabTo(/^Skip to content$/);
	await page.keyboard.press('Enter');
	await tabTo(/^Search consumers$/);
	await page.keyboard.type('app-a');
	await tabTo(/^app-a$/);
	const link = await page.evaluateHandle(() => document.activeElement);
	await page.evaluate(() => document.dispatchEvent(new Event('changed'))); // it is read anew
	await until('drawn anew', () => link.evaluate((e) => !e.isConnected));
	equal((await focused()).name, 'app-a', 'focus after reading anew');
	await page.keyboard.press('Enter');
	await until('heading', async () => (await focused()).name === 'app-a' && await page.locator('h1:focus').count() === 1);
	await tabTo(/^Raise limit: tokens per hour/);

	await page.keyboard.press('Enter');
	await page.getByRole('dialog').waitFor();
	await page.keyboard.press('Escape');
	await page.getByRole('dialog').waitFor({ state: 'detached' });
	ok(/^Raise limit: tokens per hour/.test((await focused()).name), 'the focus is not where it was before the dialog');

	await page.keyboard.press('Enter');
	await page.getByRole('dialog').waitFor();
	equal((await focused()).name, 'New limit', 'focus in the dialog');
	await page.keyboard.type('1k'); // what is there is selected
	await page.keyboard.press('Enter');
	await page.getByText('app-a may now use 1,000 tokens per hour').waitFor();
	equal(await chat(args), 200, 'the next call');

	await tabTo(/^Limits$/, 'Shift+Tab');
	await page.keyboard.press('Enter');
	await tabTo(new RegExp('^Edit ' + args.instance + '$'));
	await page.keyboard.press('Enter');
	await page.getByRole('form').waitFor();
	equal((await focused()).name, 'Amount', 'focus in the form');
	await page.keyboard.press('Escape');
	await page.getByRole('form').waitFor({ state: 'detached' });
};
