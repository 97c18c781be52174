// A model that is counted apart gets a limit of its own: of a consumer, and of all.
import { chat, row } from './gateway.mjs';

export default async ({ url, args, open, shot, axe, equal }) => {
	const page = await open();
	await page.goto(url);
	equal(await chat(args), 429, 'before');

	await page.getByRole('link', { name: 'app-a' }).click();
	await row(page, 'gpt-4o-mini').getByRole('button', { name: /^Raise limit/ }).click();
	await page.getByLabel('New limit').fill('1k');
	await page.getByRole('button', { name: 'Set limit' }).click();
	await page.getByText(/app-a may now use 1,000 tokens per hour .* gpt-4o-mini, on all replicas/).waitFor();
	await row(page, 'gpt-4o-mini').getByText('own limit').waitFor();
	equal(await chat(args), 200, 'the next call');

	await page.getByRole('link', { name: 'Limits', exact: true }).click();
	await page.getByRole('button', { name: /^Raise limit: tokens per day .* gpt-4o-mini of / }).click();
	await page.getByLabel('New limit').fill('5M');
	await page.getByRole('button', { name: 'Set limit' }).click();
	await page.getByText(/All callers together may now use 5,000,000 tokens per day .* gpt-4o-mini, on all replicas/).waitFor();
	await page.getByText('5,000,000 on all replicas').waitFor();
	await shot(page, 'limits-of-models');
	equal(await axe(page), [], 'for assistive technology');
};
