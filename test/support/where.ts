/** Where things are, whoever asks. */
import { fileURLToPath } from 'node:url';

/** The repository. */
export const ROOT = fileURLToPath(new URL('../..', import.meta.url));
/** The Node that runs this: 24, from the dev-dependency, whatever the machine's own is. */
export const NODE = process.execPath;
