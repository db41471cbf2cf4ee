/** Light, dark, or the system's theme: stored in this browser. */
import { useSyncExternalStore } from 'react';

export const THEMES = ['system', 'light', 'dark'] as const;
type Theme = (typeof THEMES)[number];

const STORED_AS = 'otela-theme';
const listeners = new Set<() => void>();

/** A browser may forbid storage: then the choice lasts as long as the page. */
let chosen: Theme = read();

function read(): Theme {
  try {
    const stored = localStorage.getItem(STORED_AS);
    return THEMES.find((theme) => theme === stored) ?? 'system';
  } catch {
    return 'system';
  }
}

/** Applied before the first paint, so that no page flashes in the wrong colors. */
export function applyTheme(): void {
  if (chosen === 'system') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
}

export function chooseTheme(theme: Theme): void {
  chosen = theme;
  try {
    localStorage.setItem(STORED_AS, theme);
  } catch {
    // The browser forbids storage: the choice applies, but is not remembered.
  }
  applyTheme();
  for (const listener of listeners) listener();
}

export function useTheme(): Theme {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => chosen,
  );
}
