import { join } from 'node:path';

/** A file of research/data/. */
export const researchData = (name: string): string => join(import.meta.dirname, 'data', name);
