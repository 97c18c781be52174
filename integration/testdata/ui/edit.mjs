// The limits are edited in the config: one is raised, one removed, one added, by one load.
// What has been counted stays.
import { chat } from './gateway.mjs';

export default async ({ url, args, open, shot, equal, ok }) => {
	const page = await open();
	await page.goto(url);
	await page.getByRole('link', { name: 'Limits', exact: true }).click();
	await page.getByText('acts here alone').waitFor();
	await page.getByText('acts on all replicas and stays').waitFor();
	const side = (name) => page.getByRole('region', { name });
	await side('Backend').getByRole('heading', { name: args.instance + '-all' }).waitFor();
	equal(await side('Backend').getByRole('heading', { name: args.instance, exact: true }).count(), 0, 'limits of consumers beside the backend’s');

	const consumer = side('Per consumer');
	await consumer.getByRole('button', { name: 'Edit ' + args.instance }).click();
	const form = page.getByRole('form', { name: 'Limits of ' + args.instance });
	const tokens = form.getByRole('group', { name: 'tokens per hour' });
	equal(await tokens.getByLabel('Amount').inputValue(), '100', 'amount');

	// what Caddy does not take is told in its words
	await tokens.getByLabel('Amount').fill('many');
	await form.getByRole('button', { name: 'Save on this replica' }).click();
	ok(/many/.test(await form.getByRole('alert').innerText()), 'it is not told what is wrong');
	await shot(page, 'edit');
	equal(await chat(args), 429, 'after an edit that was refused');

	await tokens.getByLabel('Amount').fill('1k');
	await form.getByRole('group', { name: 'requests per day' }).getByLabel('Remove').check();
	await form.getByRole('button', { name: 'Add limit' }).click();
	const added = form.getByRole('group', { name: 'New limit' });
	await added.getByLabel('Amount').fill('2M');
	await added.getByLabel('Per').selectOption('month');
	await form.getByRole('button', { name: 'Save on this replica' }).click();
	await page.getByText('What has been counted stays.').waitFor();
	await consumer.getByRole('rowheader', { name: 'tokens per month' }).waitFor();
	equal(await chat(args), 200, 'the next call');

	await page.getByRole('link', { name: 'Consumers', exact: true }).click();
	await page.getByLabel('Limit', { exact: true }).selectOption({ label: `${args.instance}: tokens per hour` });
	await page.locator('tbody tr').filter({ hasText: 'app-a' }).filter({ hasText: '180' }).filter({ hasText: '1,000' }).waitFor();
};
