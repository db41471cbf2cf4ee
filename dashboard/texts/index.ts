/**
 * The texts of the page's language. Importing this module waits until they are loaded, so that other modules can read
 * `t` when they are loaded.
 */
import type { Texts } from './en/index.ts';
import { language } from './language.ts';

const LOADERS = {
  en: async () => (await import('./en/index.ts')).en,
  de: async () => (await import('./de/index.ts')).de,
  fr: async () => (await import('./fr/index.ts')).fr,
} as const;

export const t: Texts = await LOADERS[language]();
