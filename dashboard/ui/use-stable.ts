import { useCallback, useRef } from 'react';

/** The same function at each drawing, which runs the newest `run`: a memoised component that is given it is not drawn again for it. */
export function useStable<A extends unknown[], R>(run: (...args: A) => R): (...args: A) => R {
  const latest = useRef(run);
  latest.current = run;
  return useCallback((...args: A) => latest.current(...args), []);
}
