import type { Live } from '../api/live.ts';
import type { Me } from '../api/schemas.ts';

/** What every page may need. */
export interface World {
  me: Me;
  live: Live;
}
