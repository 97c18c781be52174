// A consumer has used up its limit. Three clicks raise it, for the very next call.
import { chat, countClicks, row } from './gateway.mjs';

export default async ({ url, args, open, shot, equal, ok, until }) => {
	const page = await open();
	const clicks = await countClicks(page);
	await page.goto(url);
	equal(await chat(args), 429, 'before');

	await page.getByRole('link', { name: 'app-a' }).click();
	await row(page, 'tokens per hour').getByRole('button', { name: /^Raise limit/ }).click();
	equal(await page.getByLabel('New limit').inputValue(), '200', 'what the page proposes');
	await page.getByRole('button', { name: 'Set limit' }).click();
	await page.getByText('app-a may now use 200 tokens per hour, on all replicas.').waitFor();
	equal(await clicks(), 3, 'clicks');
	equal(await chat(args), 200, 'the next call');

	// the page shows it without being asked
	const tokens = row(page, 'tokens per hour');
	await tokens.getByText('own limit').waitFor();
	await until('used', async () => (await tokens.locator('.amount').textContent()) === '180');
	equal(await tokens.locator('.of').first().textContent(), 'own limit200', 'limit');
	await shot(page, 'raised');

	// what makes no sense is said in the dialog, and nothing is changed
	await tokens.getByRole('button', { name: /^Raise limit/ }).click();
	for (const wrong of ['many', '1.5', '$5', '-3']) {
		await page.getByLabel('New limit').fill(wrong);
		await page.getByRole('button', { name: 'Set limit' }).click();
		await page.getByRole('dialog').getByRole('alert').waitFor();
	}
	await shot(page, 'refused');
	await page.getByRole('button', { name: /^Back to the config/ }).click();
	await page.getByRole('dialog').waitFor({ state: 'detached' });
	await until('back', async () => (await tokens.locator('.of').first().textContent()) === '100');
	equal(await chat(args), 429, 'with the limit of the config');
	ok(!await tokens.getByText('own limit').count(), 'still marked');
};
