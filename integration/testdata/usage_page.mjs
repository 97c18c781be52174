// The page of llm_usage, as a caller sees it: on a desktop and a phone, light and dark, by
// keyboard alone and with assistive technology.
export default async ({ url, args, open, shot, axe, equal, ok }) => {
	const extraHTTPHeaders = { Authorization: 'Bearer ' + args.key };
	const views = {
		desktop: {},
		dark: { colorScheme: 'dark' },
		phone: { viewport: { width: 360, height: 740 }, deviceScaleFactor: 2, isMobile: true, hasTouch: true },
		'phone-dark': { viewport: { width: 360, height: 740 }, deviceScaleFactor: 2, isMobile: true, hasTouch: true, colorScheme: 'dark' },
		wide: { viewport: { width: 1900, height: 900 }, reducedMotion: 'reduce', forcedColors: 'active' },
	};
	for (const [name, options] of Object.entries(views)) {
		if (!args.views.includes(name)) continue;
		const page = await open({ ...options, extraHTTPHeaders });
		const response = await page.goto(url, { waitUntil: 'networkidle' });
		equal(response.status(), 200, 'the status');
		await shot(page, `${args.name}-${name}`);
		equal(await axe(page), [], `${name}: what is wrong for assistive technology`);
		ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${name}: the page is wider than the screen`);
	}

	const page = await open({ extraHTTPHeaders });
	await page.goto(url);
	const bars = await page.getByRole('progressbar').evaluateAll((all) =>
		all.map((b) => [document.getElementById(b.getAttribute('aria-labelledby')).innerText, b.getAttribute('aria-valuetext'), b.value, b.max]));

	// the one thing to do is reached and done by keyboard, and shows what is new
	await page.keyboard.press('Tab');
	equal(await page.evaluate(() => document.activeElement.innerText), 'Refresh', 'the first stop of the keyboard');
	const again = page.waitForResponse((r) => r.url() === url);
	const loaded = page.waitForEvent('load');
	await page.keyboard.press('Enter');
	equal((await again).status(), 200, 'the status when it is refreshed');
	await loaded;
	return { title: await page.title(), text: await page.locator('main').innerText(), bars };
};
