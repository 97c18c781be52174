// Where keys are not in the store, the page says what to write to have them there.
export default async ({ url, open, shot, axe, equal }) => {
	const page = await open();
	await page.goto(url);
	await page.getByRole('link', { name: 'Keys', exact: true }).click();
	await page.getByText('keys_store').first().waitFor();
	equal(await page.getByRole('button', { name: 'New key' }).count(), 0, 'buttons that do nothing');
	equal(await axe(page), [], 'for assistive technology');
	await shot(page, 'no-keys');
};
