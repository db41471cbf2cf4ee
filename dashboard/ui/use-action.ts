import { useState } from 'react';

export interface Action<T> {
  /** Why the last one failed. */
  error: unknown;
  /** One is under way. */
  busy: boolean;
  /** Runs it; what it gives goes to `done`, what it throws is the error until the next one. */
  act: (work: Promise<T>) => void;
}

/** Changes that are asked for by a button, and what became of them. */
export function useAction<T>(done: (made: T) => void): Action<T> {
  const [error, setError] = useState<unknown>();
  const [running, setRunning] = useState(0);
  const act = (work: Promise<T>) => {
    setError(undefined);
    setRunning((n) => n + 1);
    work
      .then(done)
      .catch(setError)
      .finally(() => setRunning((n) => n - 1));
  };
  return { error, busy: running > 0, act };
}
