/** Every language of the dashboard has every text, and shows the same values in it. */
import { expect, it } from 'vitest';
import { de } from '../../dashboard/texts/de/index.ts';
import { en } from '../../dashboard/texts/en/index.ts';
import { fr } from '../../dashboard/texts/fr/index.ts';

/** The values with which texts that are functions are called. */
const VALUES = [41, 42, 43];

function said(text: (...values: never[]) => unknown): string {
  try {
    return JSON.stringify(Reflect.apply(text, undefined, VALUES));
  } catch {
    return JSON.stringify(Reflect.apply(text, undefined, VALUES.map(String))); // the text calls a string's method
  }
}

/** All texts, by their path. */
function textsOf(texts: unknown, path = ''): [path: string, text: string][] {
  if (typeof texts === 'string') return [[path, texts]];
  if (typeof texts === 'function') return [[path, said(texts as (...values: never[]) => unknown)]];
  if (typeof texts !== 'object' || texts === null) throw new Error(`${path} is no text`);
  return Object.entries(texts).flatMap(([name, inner]) => textsOf(inner, `${path}.${name}`));
}

const english = new Map(textsOf(en));

/** Texts of several words that are the same in another language. */
const SAME = ['Chat completions', 'CPUs', 'USD/kWh'];

it.each([
  ['de', de],
  ['fr', fr],
])('%s has every text of English and no other, with the same values, and translated', (_, texts) => {
  const translated = new Map(textsOf(texts));
  expect([...translated.keys()].toSorted()).toEqual([...english.keys()].toSorted());
  const wrong: string[] = [];
  for (const [path, text] of translated) {
    const original = english.get(path) ?? '';
    if ((text === '') !== (original === '')) wrong.push(`${path} is empty`);
    for (const value of VALUES.map(String))
      if (text.includes(value) !== original.includes(value)) wrong.push(`${path} does not show its value: ${text}`);
    const words = text.match(/\p{L}{2,}/gu) ?? [];
    if (text === original && words.length > 1 && !SAME.some((word) => text.includes(word)))
      wrong.push(`${path} is in English: ${text}`);
  }
  expect(wrong).toEqual([]);
});
