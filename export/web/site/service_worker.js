// Keeps the site, so that it works without a network. build.mjs puts VERSION, SHELL, ON_DEMAND,
// POLICY and HASHES (the SHA-256 of each file) before this. What is kept is what was built, to the bit: a file
// that came cut or changed is fetched again, past the browser's own cache, and never kept.

const PREFIX = `${self.registration.scope}#`; // a cache belongs to the origin: others may have some
const CACHE = PREFIX + VERSION;

self.addEventListener('install', (event) => event.waitUntil(install()));

async function install() {
  const cache = await caches.open(CACHE);
  const names = [...SHELL, ...(await usedByOlder())];
  await Promise.all(
    names.map(async (name) => {
      const url = new URL(name, self.registration.scope).href;
      const whole = await fetchWhole(name, url, 'reload');
      if (!whole.isRight) throw new Error(`${url} did not come as it was built`);
      await cache.put(url, whole.response);
    }),
  );
}

/** What an older version has loaded on demand: a newer one must not be without it. */
async function usedByOlder() {
  const older = await Promise.all((await olderCaches()).map((name) => caches.open(name)));
  const keys = (await Promise.all(older.map((cache) => cache.keys()))).flat();
  const urls = new Set(keys.map(({ url }) => url));
  return ON_DEMAND.filter((path) => urls.has(new URL(path, self.registration.scope).href));
}

async function olderCaches() {
  return (await caches.keys()).filter((name) => name.startsWith(PREFIX) && name !== CACHE);
}

self.addEventListener('activate', (event) => event.waitUntil(activate()));

async function activate() {
  await Promise.all((await olderCaches()).map((name) => caches.delete(name)));
  await self.clients.claim();
}

// The page of an older version asks for the newer one, then reloads.
self.addEventListener('message', (event) => {
  if (event.data === 'activate') self.skipWaiting();
});

self.addEventListener('fetch', (event) => {
  const { request } = event;
  const isOurs = request.method === 'GET' && request.url.startsWith(self.registration.scope);
  if (isOurs) event.respondWith(cached(event));
});

async function cached(event) {
  const { request } = event;
  const { pathname } = new URL(request.url);
  const name = pathname.slice(new URL(self.registration.scope).pathname.length);
  if (!Object.hasOwn(HASHES, name)) return fetch(request); // no file of the site
  const cache = await caches.open(CACHE);
  const isAgain = request.cache === 'reload'; // what came before was damaged
  const known = isAgain ? undefined : await cache.match(request, { ignoreSearch: true });
  if (known) return known;
  const mode = isAgain ? 'reload' : 'no-cache';
  if (isCheckedByPage(name)) {
    const response = await fetch(request, { cache: mode });
    event.waitUntil(keep(cache, request, checked(name, response.clone())));
    return response;
  }
  const whole = await fetchWhole(name, request, mode);
  event.waitUntil(keep(cache, request, { ...whole, response: whole.response.clone() }));
  return whole.response;
}

/** The model and its tokenizers: the page shows how they come, and asks again by itself. */
function isCheckedByPage(name) {
  return name.startsWith('model/') && name !== 'model/metadata.json';
}

/** A file's response once all of it is here, and whether it is what was built. */
async function fetchWhole(name, request, mode) {
  const found = await checked(name, await fetch(request, { cache: mode }));
  if (found.isRight || found.response.status !== 200) return found;
  return checked(name, await fetch(request, { cache: 'reload' }));
}

async function checked(name, response) {
  if (response.status !== 200) return { response, isRight: false };
  const bytes = await response.arrayBuffer();
  const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', bytes));
  const received = Array.from(digest, (byte) => byte.toString(16).padStart(2, '0')).join('');
  const isRight = received === HASHES[name];
  return { response: new Response(bytes, { headers: headersOf(response) }), isRight };
}

/** The server's headers, and the policy if it sends none: a page's own does not hold in a worker. */
function headersOf(response) {
  const headers = new Headers(response.headers);
  headers.delete('content-encoding'); // it is unpacked
  headers.delete('content-length');
  if (!headers.has('content-security-policy')) headers.set('content-security-policy', POLICY);
  return headers;
}

async function keep(cache, request, found) {
  try {
    const { response, isRight } = await found;
    if (isRight) await cache.put(request.url, response);
  } catch (error) {
    console.warn(`${request.url} could not be kept for use without a network:`, error);
  }
}
