// What people type as amounts, and what is made of it. Money depends on it.
export default async ({ url, open, equal }) => {
	const page = await open();
	await page.goto(url);
	await page.locator('h1').waitFor();
	const made = (name, cases) => page.evaluate(async ([f, all]) => {
		const amount = await import('./amount.js');
		return all.map((args) => {
			try {
				return amount[f](...args);
			} catch {
				return 'refused';
			}
		});
	}, [name, cases]);

	const parse = [
		['10000', 'tokens', '10000'], ['10k', 'tokens', '10000'], ['2.5M', 'tokens', '2500000'], ['10_000', 'tokens', '10000'],
		['1,234,567', 'tokens', '1234567'], [' 5 ', 'requests', '5'], ['007', 'tokens', '7'], ['0', 'tokens', '0'], ['1.50k', 'tokens', '1500'],
		['9007199254740991', 'tokens', '9007199254740991'],
		['$0.10', 'usd', '0.1'], ['0.000000000001', 'usd', '0.000000000001'], ['25', 'usd', '25'], ['$1,000', 'usd', '1000'], ['$1.5k', 'usd', '1500'], ['$2.00', 'usd', '2'], ['$0.3', 'usd', '0.3'],
		['1,5', 'usd', 'refused'], ['1,50', 'tokens', 'refused'], ['1.5', 'tokens', 'refused'], ['1.2345k', 'tokens', 'refused'], ['$5', 'tokens', 'refused'],
		['-3', 'tokens', 'refused'], ['--3', 'usd', 'refused'], ['1e3', 'tokens', 'refused'], ['', 'tokens', 'refused'], ['10 k', 'tokens', 'refused'], ['0x10', 'tokens', 'refused'],
		['9007199254740992', 'tokens', 'refused'], ['10000T', 'tokens', 'refused'], ['.5', 'usd', 'refused'], ['1__0', 'tokens', 'refused'],
	];
	equal(await made('parse', parse.map(([t, unit]) => [t, unit])), parse.map((c) => c[2]), 'amounts that are typed');

	const text = [
		[1234567, 'tokens', '1,234,567'], [1.5, 'audio_seconds', '1.5'], [0, 'tokens', '0'],
		['0', 'usd', '$0.00'], ['10', 'usd', '$10.00'], ['1234.5', 'usd', '$1,234.50'], ['0.05', 'usd', '$0.05'], ['0.0151', 'usd', '$0.0151'], ['0.0051', 'usd', '$0.0051'], ['0.000000000001', 'usd', '$0.000000000001'],
	];
	equal(await made('text', text.map(([t, unit]) => [t, unit])), text.map((c) => c[2]), 'amounts that are shown');

	const twice = [[100, 'tokens', '200'], ['0.1', 'usd', '$0.2'], ['10', 'usd', '$20'], ['0.000000000001', 'usd', '$0.000000000002']];
	equal(await made('twice', twice.map(([t, unit]) => [t, unit])), twice.map((c) => c[2]), 'what is proposed');

	const now = Date.parse('2026-01-01T00:00:00Z');
	const until = [['2026-01-01T00:00:30Z', '30 s'], ['2026-01-01T01:00:00Z', '60 min'], ['2026-01-01T20:00:00Z', '20 h'], ['2026-01-31T00:00:00Z', '30 d'], ['2025-12-31T00:00:00Z', 'now'], [null, '']];
	equal(await made('until', until.map(([at]) => [at, now])), until.map((c) => c[1]), 'times');
};
