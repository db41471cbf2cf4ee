import { useCallback, useEffect, useState } from 'preact/hooks';

export type Loaded<T> = { state: 'loading' } | { state: 'failed'; error: Error } | { state: 'here'; value: T };

/** Loads once, and again by the returned function; what is here stays shown meanwhile. */
export function useLoad<T>(
  load: (signal: AbortSignal) => Promise<T>,
  inputs: readonly unknown[],
): [Loaded<T>, () => void] {
  const [loaded, setLoaded] = useState<Loaded<T>>({ state: 'loading' });
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const controller = new AbortController();
    load(controller.signal).then(
      (value) => !controller.signal.aborted && setLoaded({ state: 'here', value }),
      (error: unknown) => {
        if (controller.signal.aborted) return;
        setLoaded({ state: 'failed', error: error instanceof Error ? error : new Error(String(error)) });
      },
    );
    return () => controller.abort();
  }, [...inputs, turn]);
  return [loaded, useCallback(() => setTurn((n) => n + 1), [])];
}
