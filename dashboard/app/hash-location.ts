/**
 * The page's location is in the hash of the address: `#/chat?model=x`. So the gateway serves one file, and a location
 * cannot be mistaken for a path of the API. wouter's own hash location puts the query before the hash, where it would
 * be sent to the gateway.
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
