/** The texts of the current language. There is only one yet: load another here, before the first page is rendered. */
import { en, type Texts } from './en/index.ts';

export const t: Texts = en;
