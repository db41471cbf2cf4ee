/** What one look at this machine showed. */
export interface Finding {
  what: string;
  /** `odd`: it works, but probably not as meant. */
  verdict: 'good' | 'odd' | 'bad';
  found: string;
  /** What to do about it; absent where nothing is to be done. */
  fix?: string;
}

export const good = (what: string, found: string): Finding => ({ what, verdict: 'good', found });
export const odd = (what: string, found: string, fix: string): Finding => ({ what, verdict: 'odd', found, fix });
export const bad = (what: string, found: string, fix: string): Finding => ({ what, verdict: 'bad', found, fix });
