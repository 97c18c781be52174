// A grant takes from what is used, a charge adds to it.
import { chat, row } from './gateway.mjs';

export default async ({ url, args, open, shot, equal, until }) => {
	const page = await open();
	await page.goto(url);
	await page.getByRole('link', { name: 'app-a' }).click();
	const tokens = row(page, 'tokens per hour');
	const adjust = async (what, amount, used) => {
		await tokens.getByRole('button', { name: /^Adjust use/ }).click();
		await page.getByLabel('What').selectOption({ label: what });
		await page.getByLabel('How many tokens').fill(amount);
		if (used === '20') await shot(page, 'adjust');
		await page.getByRole('dialog').getByRole('button', { name: 'Adjust' }).click();
		await until(`${used} used`, async () => (await tokens.locator('.amount').textContent()) === used);
	};
	equal(await chat(args), 429, 'before');
	await adjust('Grant: less is used', '100', '20');
	await page.getByText('100 tokens granted to app-a.').waitFor();
	equal(await chat(args), 200, 'after the grant');
	await adjust('Charge: more is used', '7', '87');
	await page.getByText('7 tokens charged to app-a.').waitFor();
};
