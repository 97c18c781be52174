// Runs scripts in Chromium, one after the other, for the Go package browsertest. It reads
// a job a line from stdin and answers each with a line on stdout; when stdin ends, so do
// the browser and this process. All jobs share the browser and nothing else: each page
// has a profile of its own.
//
// A script's default export is an async function. Its argument has:
//
//	url, args        what the Go test gave
//	open(options)    a new page; options are those of a browser context: viewport, colorScheme, …
//	shot(page, name) a picture of the whole page, for people to look at, where they are kept
//	axe(page, rules) what axe-core finds wrong with the page for assistive technology, by
//	                 all of its rules or by those named
//	allow(pattern)   problems that match are what the script wants to see
//	equal(a, b, what), ok(value, what)   assertions
//	until(what, fn)  polls until fn returns something true, and returns that
//
// What it returns is the result. Errors on the console, exceptions, violations of the
// page's content security policy and requests to other places are problems.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { pathToFileURL } from 'node:url';
import { isDeepStrictEqual, inspect } from 'node:util';
import { chromium } from 'playwright-core';

const [executablePath] = process.argv.slice(2);
const axeSource = readFileSync(new URL('./node_modules/axe-core/axe.min.js', import.meta.url), 'utf8');

const browser = await chromium.launch({
	executablePath,
	// Chromium's sandbox cannot be had by root, who most containers run as.
	chromiumSandbox: process.getuid() !== 0,
	args: ['--disable-gpu', '--disable-dev-shm-usage', '--renderer-process-limit=2', '--force-color-profile=srgb'],
});

for await (const line of createInterface({ input: process.stdin })) {
	const job = JSON.parse(line);
	process.stdout.write(JSON.stringify(await run(job)) + '\n');
}
await browser.close();

async function run(job) {
	const contexts = [], problems = [], allowed = [], shots = [];
	const origin = new URL(job.url).origin;
	const tools = {
		url: job.url,
		args: job.args,
		allow: (pattern) => allowed.push(pattern),
		async open(options = {}) {
			const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, locale: 'en-US', timezoneId: 'UTC', ...options });
			contexts.push(context);
			context.setDefaultTimeout(job.patience);
			await context.route((url) => url.origin !== origin && url.protocol.startsWith('http'), (route) => {
				problems.push('request to another place: ' + route.request().url());
				return route.abort();
			});
			await context.exposeFunction('__violated', (text) => problems.push('content security policy: ' + text));
			await context.addInitScript(() => document.addEventListener('securitypolicyviolation', (e) => {
				globalThis.__violated(`${e.effectiveDirective} blocked ${e.blockedURI} at ${e.sourceFile}:${e.lineNumber}`);
			}));
			context.on('console', (m) => m.type() === 'error' && problems.push(`console: ${m.text()} (${m.location().url})`));
			context.on('weberror', (e) => problems.push('exception: ' + (e.error().stack ?? e.error())));
			return context.newPage();
		},
		async shot(page, name) {
			if (!job.dir) return;
			const path = join(job.dir, name + '.png');
			await page.screenshot({ path, fullPage: true, animations: 'disabled' });
			shots.push(path);
		},
		async axe(page, rules) {
			await page.evaluate(axeSource);
			const found = await page.evaluate((runOnly) => globalThis.axe.run(document, { resultTypes: ['violations'], ...(runOnly && { runOnly }) }), rules);
			return found.violations.flatMap((v) => v.nodes.map((n) => `${v.id}: ${v.help}: ${n.html.slice(0, 300)}: ${n.failureSummary}`));
		},
		ok(value, what) {
			if (!value) throw new Error(what);
		},
		equal(got, want, what) {
			if (!isDeepStrictEqual(got, want)) throw new Error(`${what}: ${inspect(got)}, want ${inspect(want)}`);
		},
		async until(what, fn) {
			for (const end = Date.now() + job.patience; ;) {
				const got = await fn();
				if (got) return got;
				if (Date.now() > end) throw new Error(`${what}: not in ${job.patience} ms`);
				await new Promise((done) => setTimeout(done, 30));
			}
		},
	};
	const answer = {};
	try {
		const script = await import(pathToFileURL(job.script));
		answer.result = await script.default(tools);
	} catch (e) {
		answer.error = e.stack ?? String(e);
		// what the pages looked like then tells most
		for (const [i, page] of contexts.flatMap((c) => c.pages()).entries()) {
			await tools.shot(page, `failed-${i}`).catch(() => {});
		}
	}
	for (const context of contexts) await context.close().catch((e) => problems.push(String(e)));
	answer.problems = problems.filter((p) => !allowed.some((pattern) => pattern.test(p)));
	answer.shots = shots;
	return answer;
}
