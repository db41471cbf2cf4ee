/**
 * The page's language: the one that was chosen in this browser, otherwise the first known one of the browser's list.
 */
export const LANGUAGES = ['en', 'de', 'fr'] as const;
export type Language = (typeof LANGUAGES)[number];

/** Each language under its own name, so that people find theirs in any language. */
export const LANGUAGE_NAMES: Readonly<Record<Language, string>> = { en: 'English', de: 'Deutsch', fr: 'Français' };

const STORED_AS = 'otela-language';

export const language: Language = chosen() ?? preferred(navigator.languages) ?? 'en';

/** The locale of dates. Undefined: the browser's own, which knows the order of day and month of its country. */
export const dateLocale = preferred([navigator.language]) === language ? undefined : language;

/** A browser may forbid storage. */
function chosen(): Language | undefined {
  try {
    const stored = localStorage.getItem(STORED_AS);
    return LANGUAGES.find((known) => known === stored);
  } catch {
    return undefined;
  }
}

/** The first known language of a list such as `['de-CH', 'en']`. */
function preferred(tags: readonly string[]): Language | undefined {
  for (const tag of tags) {
    const [primary] = tag.toLowerCase().split('-', 1);
    const known = LANGUAGES.find((one) => one === primary);
    if (known !== undefined) return known;
  }
  return undefined;
}

/** Takes effect when the page is loaded again. Without storage, the browser's language remains. */
export function rememberLanguage(next: Language): void {
  try {
    localStorage.setItem(STORED_AS, next);
  } catch {
    // The browser forbids storage.
  }
}
