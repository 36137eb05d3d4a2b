// What TypeScript is to accept and to refuse, without the types of the DOM.

import { joinText, Translator, TranslatorError, type Source } from 'keras-transformer-web';

export async function use(source: Source, files: Map<string, Uint8Array>): Promise<string[]> {
  const translator: Translator = await Translator.open(source, {
    assets: files,
    onProgress: ({ file, loaded, total }) => [file.length, loaded, total ?? 0],
  });
  const ids: number[] = await translator.translateIds(translator.encode('a'));
  const { sentences, gaps } = translator.splitText('A. B.', { language: 'de' });
  const translations = await Promise.all(sentences.map((each) => translator.translate(each)));
  const mode: string | undefined = translator.metadata.mode;
  const whole: string = await translator.translateText('A. B.', { language: 'de' });
  await translator.close();
  return [translator.decode(ids), joinText(gaps, translations), mode ?? '', whole];
}

export function codeOf(error: unknown): string {
  if (!(error instanceof TranslatorError)) return '';
  // @ts-expect-error: no such code
  if (error.code === 'other') return '';
  return error.code;
}

export async function mistakes(translator: Translator): Promise<void> {
  // @ts-expect-error: a translator is opened
  new Translator();
  // @ts-expect-error: no source
  await Translator.open(3);
  // @ts-expect-error: one text, not several
  await translator.translate(['a']);
  // @ts-expect-error: no such option
  await translator.translateText('a', { from: 'de' });
}

export const sources: Source[] = [
  'model/',
  new Map([['metadata.json', new Uint8Array()]]),
  async (name) => (name === 'metadata.json' ? new Uint8Array() : undefined),
];
