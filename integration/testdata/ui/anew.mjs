// The store has lost its keys: a new one is issued only if it is said that all others end.
import { chat } from './gateway.mjs';

export default async ({ url, args, open, shot, axe, equal, until }) => {
	const page = await open();
	await page.goto(url);
	await page.getByRole('link', { name: 'Keys', exact: true }).click();
	await page.getByRole('button', { name: 'New key' }).click();
	const anew = page.getByLabel('Begin anew with this key');
	await anew.waitFor({ state: 'hidden' });
	await page.getByRole('button', { name: 'Issue key' }).click();
	await page.getByRole('alert').filter({ hasText: 'the store has lost all keys' }).waitFor();
	await shot(page, 'lost-keys');
	equal(await axe(page), [], 'for assistive technology');
	equal(await chat(args), 200, 'a key that the gateway remembers');
	await anew.check();
	await page.getByRole('button', { name: 'Issue key' }).click();
	const issued = await page.getByLabel('Key', { exact: true }).inputValue();
	await until('the new key works', async () => await chat({ ...args, key: issued }) === 200);
	await until('the others end', async () => await chat(args) === 401);
};
