import { useCallback, useRef } from 'react';

/**
 * Returns the same function for each render; it calls the newest `run`. A memoized component with this function is not
 * rendered again for it.
 */
export function useStable<A extends unknown[], R>(run: (...args: A) => R): (...args: A) => R {
  const latest = useRef(run);
  latest.current = run;
  return useCallback((...args: A) => latest.current(...args), []);
}
