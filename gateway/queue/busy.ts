import { BusyNodes } from '../../shared/routing/busy.ts';

/** One per isolate. */
export const busyNodes = new BusyNodes();
