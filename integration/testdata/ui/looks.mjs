// Every view in every look: on a desk and on a phone, light and dark. None is wider than
// its window, and axe-core finds nothing wrong with any.
import { chat } from './gateway.mjs';

const looks = {
	desk: { colorScheme: 'light' },
	'desk-dark': { colorScheme: 'dark' },
	phone: { viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, isMobile: true, hasTouch: true, colorScheme: 'light' },
	'phone-dark': { viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, isMobile: true, hasTouch: true, colorScheme: 'dark' },
};

export default async ({ url, args, open, shot, axe, equal, ok, until }) => {
	const page = await open();
	await page.goto(url);
	await page.getByRole('link', { name: 'checkout' }).waitFor();
	const base = page.url().replace(/#.*/, '');
	const cookies = await page.context().cookies(base);
	const views = {
		consumers: () => page.getByRole('link', { name: 'checkout' }).waitFor(),
		activity: async () => {
			await chat(args);
			await until('spend', async () => !/^\$0\.00$/.test(await page.locator('.sums dd').first().textContent()));
			await page.locator('.chart canvas').nth(1).waitFor();
		},
		keys: () => page.getByRole('button', { name: 'New key' }).waitFor(),
		limits: () => page.getByRole('rowheader').first().waitFor(),
	};
	const wrong = [];
	const look = async (p, name) => {
		await shot(p, name);
		const width = await p.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
		if (width[0] > width[1]) wrong.push(`${name} is ${width[0]} wide in a window of ${width[1]}`);
		wrong.push(...(await axe(p)).map((w) => `${name}: ${w}`));
	};
	for (const view of Object.keys(views)) {
		await page.goto(`${base}#/${view}`);
		await views[view]();
		for (const [name, options] of Object.entries(looks)) {
			const p = await open(options);
			await p.context().addCookies(cookies);
			await p.goto(`${base}#/${view}`);
			await p.locator('main :is(tbody tr, canvas, .card, .tools button)').first().waitFor();
			await p.waitForTimeout(400); // for bars to have their width
			await look(p, `${view}-${name}`);
			if (view === 'consumers') {
				await p.getByRole('link', { name: 'recommender' }).click();
				await p.getByRole('button', { name: /^Raise limit: tokens per hour/ }).waitFor();
				await look(p, `consumer-${name}`);
				await p.getByRole('button', { name: /^Raise limit: tokens per hour/ }).click();
				await look(p, `raise-${name}`);
			}
			await p.context().close();
		}
	}
	ok(wrong.length === 0, wrong.join('\n'));
	equal(await page.locator('#problem').isVisible(), false, 'a problem is shown');
};
