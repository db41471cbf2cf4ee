import { useState } from 'preact/hooks';

export interface Action<T> {
  /** Why the last one failed. */
  error: Error | undefined;
  /** One is under way. */
  busy: boolean;
  /** Runs it; what it gives goes to `done`, what it throws is the error until the next one. */
  act(work: Promise<T>): void;
}

/** Changes that somebody asks for by a button, and what became of them. */
export function useAction<T>(done: (made: T) => void): Action<T> {
  const [error, setError] = useState<Error>();
  const [running, setRunning] = useState(0);
  const act = (work: Promise<T>) => {
    setError(undefined);
    setRunning((n) => n + 1);
    work
      .then(done)
      .catch((cause: unknown) => setError(cause instanceof Error ? cause : new Error(String(cause))))
      .finally(() => setRunning((n) => n - 1));
  };
  return { error, busy: running > 0, act };
}
