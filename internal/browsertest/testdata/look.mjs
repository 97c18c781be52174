export default async ({ url, args, open, shot, axe, ok }) => {
	const page = await open();
	await page.goto(url, { waitUntil: 'networkidle' });
	const found = page.locator(args.find);
	ok(await found.count() > 0, `nothing is ${args.find}`);
	await shot(page, 'look');
	return { title: await page.title(), heading: await found.first().innerText(), wrong: (await axe(page)).filter((w) => w.startsWith('image-alt')) };
};
