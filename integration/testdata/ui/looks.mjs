// Every view in every look: on a desk and on a phone, light and dark. None is wider than
// its window, and axe-core finds nothing wrong with any.
import { chat } from './gateway.mjs';

const looks = {
	desk: { colorScheme: 'light' },
	'desk-dark': { colorScheme: 'dark' },
	phone: { viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, isMobile: true, hasTouch: true, colorScheme: 'light' },
	'phone-dark': { viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, isMobile: true, hasTouch: true, colorScheme: 'dark' },
};

const raise = /^Raise limit: tokens per hour/;

export default async ({ url, args, open, shot, axe, equal, ok, until }) => {
	const first = await open();
	await first.goto(url);
	await first.getByRole('link', { name: 'checkout' }).waitFor();
	const base = first.url().replace(/#.*/, '');
	const cookies = await first.context().cookies(base);
	const views = {
		activity: async (page) => {
			await until('spend', async () => !/^\$0\.00$/.test(await page.locator('.sums dd').first().textContent()));
			await page.locator('.chart canvas').nth(1).waitFor();
		},
		keys: (page) => page.getByRole('button', { name: 'New key' }).waitFor(),
		limits: (page) => page.getByRole('rowheader').first().waitFor(),
		consumers: (page) => page.getByRole('link', { name: 'checkout' }).waitFor(),
		'consumers/recommender': (page) => page.getByRole('button', { name: raise }).waitFor(),
	};
	equal(await chat(args), 200, 'a call to be seen under Activity');
	const wrong = [];
	for (const [name, options] of Object.entries(looks)) {
		const page = await open(options);
		await page.context().addCookies(cookies);
		const look = async (view) => {
			await page.evaluate(() => Promise.all(document.getAnimations().map((a) => a.finished))); // bars that grow
			await shot(page, `${view.replace('/', '-')}-${name}`);
			const width = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
			if (width[0] > width[1]) wrong.push(`${view} ${name} is ${width[0]} wide in a window of ${width[1]}`);
			const rules = options.colorScheme === 'dark' ? ['color-contrast'] : undefined; // what else there is to find is there in light, too
			wrong.push(...(await axe(page, rules)).map((w) => `${view} ${name}: ${w}`));
		};
		for (const [view, drawn] of Object.entries(views)) {
			await page.goto(`${base}#/${view}`);
			await drawn(page);
			await look(view);
		}
		await page.getByRole('button', { name: raise }).click();
		await look('raise');
		equal(await page.locator('#problem').isVisible(), false, 'a problem is shown');
		await page.context().close();
	}
	ok(wrong.length === 0, wrong.join('\n'));
};
