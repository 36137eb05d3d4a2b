// Another author's page: node second_site.mjs ENGINE SITE MODEL HEADERS < request.json > answers.json
//
// ENGINE is JSON for `launch`, SITE a folder with the package in `node_modules`, MODEL one with
// `model/` and `assets/` that another server has, HEADERS those of the site.

import * as fs from 'node:fs';
import { launch } from './automation.mjs';
import { PATH, serve } from './server.mjs';

const [engine, site, elsewhere, headers] = process.argv.slice(2);
const request = JSON.parse(fs.readFileSync(0, 'utf8'));
const address = (server) => `http://127.0.0.1:${server.address().port}${PATH}`;
const files = await serve(elsewhere, { headers: { 'access-control-allow-origin': '*' } });
const own = { 'content-security-policy': headers.replaceAll('ELSEWHERE', address(files)) };
const page = await serve(site, { headers: own });
const browser = await launch(JSON.parse(engine));
try {
  const model = `${address(files)}model`;
  const assets = `${address(files)}assets/`;
  const answers = {};
  for (const place of ['page', 'worker', 'bundle', 'service']) {
    const isBundled = place === 'bundle' || place === 'service';
    const asked = { ...request, model, assets: isBundled ? assets : undefined, place };
    await browser.go(address(page));
    answers[place] = await browser.run(
      `async ({ place, ...request }) => {
        while (!globalThis.places) await new Promise((resolve) => setTimeout(resolve, 20));
        return places[place](request);
      }`,
      asked,
    );
  }
  console.log(JSON.stringify(answers));
} finally {
  await browser.close();
  for (const server of [page, files]) {
    server.closeAllConnections();
    server.close();
  }
}
