/**
 * The location in the page: `#/chat?model=x`. It is in the hash, so that the gateway serves one file and no path of its
 * API is taken. wouter's own hash location puts the query before the hash, and so the gateway would see it.
 */
import { useSyncExternalStore } from 'react';

const place = () => location.hash.replace(/^#?\/?/, '/');

function subscribe(listener: () => void): () => void {
  addEventListener('hashchange', listener);
  return () => removeEventListener('hashchange', listener);
}

function navigate(to: string, { replace = false }: { replace?: boolean } = {}): void {
  history[replace ? 'replaceState' : 'pushState'](null, '', `#${to}`);
  dispatchEvent(new Event('hashchange'));
}

export function useHashPath(): [string, typeof navigate] {
  return [useSyncExternalStore(subscribe, () => place().split('?', 1)[0] ?? '/'), navigate];
}
useHashPath.hrefs = (href: string) => `#${href}`;

/** The query, without its `?`. */
export function useHashSearch(): string {
  return useSyncExternalStore(subscribe, () => place().split('?')[1] ?? '');
}
