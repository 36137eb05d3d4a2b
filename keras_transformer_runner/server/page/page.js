// The page of the server. Its addresses are relative, so that a proxy may put it below a path.
'use strict';

const element = (id) => document.getElementById(id);
let languages = [];
let mostCharacters = Infinity;

async function ask(path, fields) {
  const request = fields && {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify(fields),
  };
  const response = await fetch(path, request);
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(answer.error ?? `The server answers ${response.status}.`);
  return answer;
}

function fill(select, codes, chosen) {
  const name = (code) => languages.find((each) => each.code === code).name;
  select.replaceChildren(...codes.map((code) => new Option(name(code), code)));
  if (codes.includes(chosen)) select.value = chosen;
}

// An answer is in the language that the reader has chosen: screen readers say it by that.
function languagesChanged() {
  const source = languages.find((each) => each.code === element('source').value);
  fill(element('target'), source.targets, element('target').value);
  element('text').lang = source.code;
  element('translation').lang = element('target').value;
}

function textChanged() {
  const length = [...element('text').value].length;
  element('count').textContent = `${length} of ${mostCharacters} characters`;
}

function show(translation, status, error = '') {
  element('translation').value = translation;
  element('copy').disabled = !translation;
  element('status').textContent = status;
  element('error').textContent = error;
}

async function translate(event) {
  event.preventDefault();
  if (element('translate').disabled) return; // it is being translated
  show('', 'Translating …');
  element('translate').disabled = true;
  try {
    const { translatedText } = await ask('translate', {
      q: element('text').value,
      source: element('source').value,
      target: element('target').value,
      api_key: element('key').value,
    });
    show(translatedText, 'Translated.');
  } catch (error) {
    show('', '', `Not translated: ${error.message}`);
  } finally {
    element('translate').disabled = false;
  }
}

async function start() {
  try {
    const settings = await ask('frontend/settings');
    languages = await ask('languages');
    mostCharacters = settings.charLimit;
    element('key-row').hidden = !settings.keyRequired;
    const sources = languages.filter((each) => each.targets.length).map((each) => each.code);
    if (!sources.length) throw new Error('this server has no model that translates.');
    fill(element('source'), sources, settings.language.source.code);
    languagesChanged();
    textChanged();
  } catch (error) {
    element('translate').disabled = true;
    show('', '', `Not ready: ${error.message}`);
    return;
  }
  element('source').addEventListener('change', languagesChanged);
  element('target').addEventListener('change', languagesChanged);
  element('text').addEventListener('input', textChanged);
  element('form').addEventListener('submit', translate);
  element('form').addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) translate(event);
  });
  element('copy').addEventListener('click', async () => {
    try {
      await navigator.clipboard.writeText(element('translation').value);
      element('status').textContent = 'Copied.';
    } catch { // a page that is not on https or localhost may not
      element('translation').select();
      element('status').textContent = 'Selected: copy it with the keyboard.';
    }
  });
}

start();
