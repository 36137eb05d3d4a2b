// What another author does with the package, wherever it runs.

export async function translateAll({ Translator }, { model, assets, texts, whole }) {
  const files = new Set();
  const onProgress = ({ file, loaded }) => loaded && files.add(file);
  const translator = await Translator.open(model, { assets, onProgress });
  const answers = await Promise.all(texts.map((text) => translator.translate(text)));
  const text = await translator.translateText(whole, { language: 'de' });
  await translator.close();
  return { answers, text, files: [...files].sort() };
}
