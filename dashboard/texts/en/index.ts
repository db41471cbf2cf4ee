/** Every word that the page says, in English. Another language is another object of this type. */
import { general } from './general.ts';
import { keys } from './keys.ts';
import { models, usage } from './models.ts';
import { nodes } from './nodes.ts';
import { joinTokens, wizard } from './providers.ts';

export const en = { ...general, keys, joinTokens, wizard, nodes, models, usage };

export type Texts = typeof en;
