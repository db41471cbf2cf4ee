import { useState } from 'react';

interface Action<T> {
  /** The error of the last action. */
  error: unknown;
  /** True while an action runs. */
  busy: boolean;
  /** Runs the action. Its result is passed to `done`; its error is kept until the next action. */
  act: (work: Promise<T>) => void;
}

/** Runs actions of buttons, and keeps their outcome. */
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
