// Keeps the site, so that it works without a network. build.mjs puts VERSION, SHELL
// and ON_DEMAND before this.

const PREFIX = `${self.registration.scope}#`; // a cache belongs to the origin: others may have some
const CACHE = PREFIX + VERSION;

self.addEventListener('install', (event) => event.waitUntil(install()));

async function install() {
  const cache = await caches.open(CACHE);
  const paths = [...SHELL, ...(await usedByOlder())];
  await cache.addAll(paths.map((path) => new Request(path, { cache: 'reload' })));
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
  const cache = await caches.open(CACHE);
  const known = await cache.match(event.request, { ignoreSearch: true });
  if (known) return known;
  const response = await fetch(event.request, { cache: 'no-cache' });
  // The model comes here, and that one of the two runtimes which this browser takes.
  if (response.status === 200) event.waitUntil(keep(cache, event.request, response.clone()));
  return response;
}

async function keep(cache, request, response) {
  try {
    await cache.put(request, response);
  } catch (error) {
    console.warn(`${request.url} could not be kept for use without a network:`, error);
  }
}
