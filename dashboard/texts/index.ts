/** The texts of the language that is shown. There is one so far: another is loaded here, before the first page is drawn. */
import { en, type Texts } from './en/index.ts';

export const t: Texts = en;
