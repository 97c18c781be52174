// A key is issued, used, rotated, also within a grace, disabled, enabled and revoked; its secret is shown once.
import { chat, row } from './gateway.mjs';

export default async ({ url, args, open, shot, axe, equal, ok, until }) => {
	const page = await open({ permissions: ['clipboard-read', 'clipboard-write'] });
	await page.goto(url);
	await page.getByRole('link', { name: 'Keys', exact: true }).click();
	await page.getByRole('button', { name: 'New key' }).click();
	await page.getByLabel('Application').fill('shop');
	await page.getByLabel('Models').fill('gpt-* o3');
	await shot(page, 'new-key');
	await page.getByRole('button', { name: 'Issue key' }).click();
	const secretOf = async () => {
		const value = await page.getByLabel('Key', { exact: true }).inputValue();
		await page.getByRole('button', { name: 'Copy' }).click();
		await page.getByRole('button', { name: 'Copied' }).waitFor();
		equal(await page.evaluate(() => navigator.clipboard.readText()), value, 'clipboard');
		return value;
	};
	const first = await secretOf();
	equal(await axe(page), [], 'for assistive technology');
	await page.getByRole('dialog').getByRole('button', { name: 'Close' }).click();
	const gone = async (secret) => ok(!(await page.content()).includes(secret), 'the secret is still in the page');
	await gone(first);
	await until('used', async () => await chat({ ...args, key: first }) === 200);

	const key = row(page, 'shop');
	await key.getByText('gpt-* o3').waitFor();
	await key.getByRole('button', { name: /^Rotate/ }).click();
	await page.getByLabel('The old secret works on').selectOption({ label: 'for an hour' });
	await page.getByRole('button', { name: 'Rotate', exact: true }).click();
	const second = await secretOf();
	ok(second !== first, 'the secret is the same');
	await page.getByRole('dialog').getByRole('button', { name: 'Close' }).click();
	await gone(second);
	await until('the new secret works', async () => await chat({ ...args, key: second }) === 200);
	equal(await chat({ ...args, key: first }), 200, 'the old one within its grace');
	await key.getByText('old secret until').waitFor();
	await shot(page, 'keys');

	// it has two secrets now, so one of them ends at once
	const again = async (ends) => {
		await key.getByRole('button', { name: /^Rotate/ }).click();
		const end = page.getByLabel('The secret that ends now');
		await page.getByLabel('The old secret works on').selectOption({ label: 'not at all: it ends now' });
		await end.waitFor({ state: 'hidden' }); // both do
		await page.getByLabel('The old secret works on').selectOption({ label: 'for an hour' });
		await end.selectOption(ends);
		await shot(page, 'rotate-' + ends);
		equal(await axe(page), [], 'for assistive technology');
		await page.getByRole('button', { name: 'Rotate', exact: true }).click();
		const secret = await secretOf();
		await page.getByRole('dialog').getByRole('button', { name: 'Close' }).click();
		await until('it works', async () => await chat({ ...args, key: secret }) === 200);
		return secret;
	};
	const third = await again('previous');
	equal(await chat({ ...args, key: first }), 401, 'the oldest of three');
	equal(await chat({ ...args, key: second }), 200, 'the one before within its grace');
	const fourth = await again('current');
	equal(await chat({ ...args, key: third }), 401, 'the one that nobody got');
	equal(await chat({ ...args, key: second }), 200, 'the older one within its grace');

	for (const [what, status] of [['Disable', 401], ['Enable', 200]]) {
		await key.getByRole('button', { name: new RegExp('^' + what) }).click();
		await shot(page, what.toLowerCase());
		await page.getByRole('dialog').getByRole('button', { name: what }).click();
		await page.getByText(`is ${what.toLowerCase()}d.`).waitFor();
		await until(what, async () => await chat({ ...args, key: fourth }) === status);
	}

	await key.getByRole('button', { name: /^Revoke/ }).click();
	await page.getByText('This cannot be taken back.').waitFor();
	await shot(page, 'revoke');
	await page.getByRole('dialog').getByRole('button', { name: 'Revoke' }).click();
	await page.getByText('is revoked.').waitFor();
	await key.waitFor({ state: 'detached' });
	for (const secret of [second, fourth]) await until('revoked', async () => await chat({ ...args, key: secret }) === 401);
	return [first, second, third, fourth];
};
