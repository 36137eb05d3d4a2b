// The page: what is typed goes to the worker, what it answers is shown.

const DELAY = 80; // milliseconds without a key before a text is sent
const SLOW = 250; // milliseconds after which an old translation is shown as old
const TAKEOVER = 5000; // milliseconds that a newer site has to take over
const element = (id) => document.getElementById(id);
const source = element('source');
const target = element('target');

let worker;
let sent = 0;
let delayed;
let slow;

await start();

async function start() {
  try {
    const response = await fetch('site.json');
    if (!response.ok) throw new Error(`site.json could not be loaded: status ${response.status}`);
    describe(await response.json());
    await keepForOffline();
    worker = new Worker('worker.js');
    worker.onmessage = ({ data }) => receive[data.type](data);
    worker.onerror = (event) => broken(event.message || 'The worker could not be started.');
  } catch (error) {
    broken(error.message);
  }
  source.addEventListener('input', () => {
    clearTimeout(delayed);
    delayed = setTimeout(send, DELAY);
    element('clear').disabled = source.value === '';
  });
  element('clear').addEventListener('click', () => use(''));
  element('copy').addEventListener('click', copy);
}

function describe({ title, from, to, examples }) {
  document.title = title;
  element('title').textContent = title;
  for (const [box, label, language] of [
    [source, element('source-label'), from],
    [target, element('target-label'), to],
  ]) {
    if (!language) continue;
    box.lang = language;
    label.textContent = languageName(language);
  }
  const buttons = examples.map((example) => {
    const button = document.createElement('button');
    button.type = 'button';
    button.textContent = example;
    button.lang = from ?? '';
    button.addEventListener('click', () => use(example));
    return button;
  });
  element('examples').replaceChildren(...buttons);
}

function languageName(code) {
  try {
    return new Intl.DisplayNames('en', { type: 'language' }).of(code);
  } catch {
    return code; // no language tag
  }
}

/** Waits until the service worker sees what is loaded, so that the first visit is kept too. */
async function keepForOffline() {
  const service = navigator.serviceWorker;
  if (!service) return; // plain HTTP, or a private window
  try {
    const isFirstVisit = !service.controller;
    const changed = new Promise((resolve) => {
      service.addEventListener('controllerchange', () => {
        // A newer site took over: start again, so that no file of the older one runs beside it.
        if (!isFirstVisit && !document.body.dataset.state) location.reload();
        resolve();
      });
    });
    const registration = await service.register('service_worker.js');
    if (registration.waiting && !isFirstVisit) {
      registration.waiting.postMessage('activate');
      // Until the page is loaded again; the older site is better than none.
      await new Promise((resolve) => setTimeout(resolve, TAKEOVER));
    }
    const failed = new Promise((resolve, reject) => {
      registration.installing?.addEventListener('statechange', ({ target: { state } }) => {
        if (state === 'redundant') reject(new Error('a file of the site could not be kept'));
      });
    });
    if (isFirstVisit) await Promise.race([changed, failed]);
  } catch (error) {
    console.warn('The page will not work offline:', error);
  }
}

function use(text) {
  source.value = text;
  source.dispatchEvent(new Event('input'));
  source.focus();
}

function send() {
  if (!worker) return;
  sent += 1;
  slow ??= setTimeout(() => target.classList.add('waiting'), SLOW);
  worker.postMessage({ id: sent, text: source.value });
}

const receive = {
  progress({ loaded, total }) {
    const progress = element('progress');
    progress.max = total;
    progress.value = loaded;
    element('loaded').textContent = `Loading ${megabytes(loaded)} of ${megabytes(total)}`;
    if (loaded === total) element('loaded').textContent = 'Starting';
  },

  ready({ bytes, metadata }) {
    element('loading').hidden = true;
    element('examples').hidden = element('examples').children.length === 0;
    element('network').hidden = !navigator.serviceWorker?.controller;
    element('size').textContent = megabytes(bytes);
    element('mode').textContent = metadata.mode?.replaceAll('_', ' ') ?? '–';
    document.body.dataset.state = 'ready';
    if (source.value) source.dispatchEvent(new Event('input')); // typed while loading
  },

  broken: ({ message }) => broken(message),

  text({ id, text, done, tokens, milliseconds, memoryBytes }) {
    if (id !== sent) return;
    if (!done) {
      if (target.classList.contains('waiting')) target.textContent = text;
      return;
    }
    settle(text);
    show('');
    element('latency').textContent = milliseconds ? `${milliseconds.toFixed(0)} ms` : '–';
    element('tokens').textContent = tokens ? String(tokens) : '–';
    element('memory').textContent = megabytes(memoryBytes);
  },

  failed({ id, message }) {
    if (id !== sent) return;
    settle('');
    show(message);
  },
};

function settle(text) {
  clearTimeout(slow);
  slow = undefined;
  target.classList.remove('waiting');
  target.textContent = text;
  target.dataset.answers = sent;
  element('copy').disabled = text === '';
}

function broken(message) {
  element('loading').hidden = true;
  document.body.dataset.state = 'broken';
  show(message);
}

function show(message) {
  element('error').textContent = message;
  element('error').hidden = message === '';
}

async function copy() {
  const button = element('copy');
  try {
    await navigator.clipboard.writeText(target.textContent);
    button.textContent = 'Copied';
  } catch {
    button.textContent = 'Not allowed';
  }
  setTimeout(() => (button.textContent = 'Copy'), 1500);
}

function megabytes(bytes) {
  return `${(bytes / 1e6).toFixed(bytes < 1e7 ? 1 : 0)} MB`;
}
